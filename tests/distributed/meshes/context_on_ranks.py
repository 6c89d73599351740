"""Run on ranks: each holds a part of every sequence; keys and values are gathered in the model."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, JSONLines, Validate

directory, stop_at = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None
LENGTH, WIDTH, WORDS = 12, 8, 16


class Reader(nn.Module):
    """One layer of causal attention over a sequence, of which each rank has a part."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        own = part(torch.arange(LENGTH).expand(len(words), LENGTH))
        hidden = self.words(words) + self.places(own)
        keys, values = (Gather.apply(layer(hidden)) for layer in (self.key, self.value))
        later = torch.arange(LENGTH)[None, :] > own[0][:, None]
        scores = self.query(hidden) @ keys.mT / WIDTH**0.5
        return self.head(hidden + scores.masked_fill(later, -torch.inf).softmax(-1) @ values)


def part(sequences):
    """This rank's part of sequences."""
    return sequences.chunk(ranks.world_size(), 1)[ranks.rank()]


class Gather(torch.autograd.Function):
    """The parts of all ranks side by side; backward, what all ranks need of this one's part."""

    @staticmethod
    def forward(ctx, own):
        parts = [torch.empty_like(own) for _ in range(ranks.world_size())]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return part(gradient)


def parts_of(batch):
    words, following = batch
    return part(words), part(following)


def loss_fn(scores, following):
    return nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())


def sentences(count):
    words = torch.randint(WORDS, (count, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    return TensorDataset(words[:, :-1], words[:, 1:])


def loader(count, shuffle):
    """The same samples on all ranks: the ranks of this mesh have one part of the data."""
    data = sentences(count)
    return DataLoader(data, 5, sampler=DistributedSampler(data, 1, 0, shuffle=shuffle))


with ranks.process_group("gloo"):
    torch.manual_seed(0)
    model = ranks.prepare(Reader().double())
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    engine = supervised(model, optimizer, loss_fn, prepare_batch=parts_of)
    engine.add(
        ClipGradNorm(0.5),
        Validate(loader(10, False), when=Events.EPOCH_COMPLETED),
        Checkpoint(directory / "run", when=Events.ITERATION_COMPLETED(every=3), resume=True),
        JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED),
    )
    if stop_at is not None:
        engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: sys.exit(7))
    engine.run(loader(22, True), max_epochs=3)
    if ranks.rank() == 0:
        weights = {
            name: each.tolist()
            for name, each in Reader.state_dict(getattr(model, "module", model)).items()
        }
        torch.save(weights, directory / "weights.pt")
