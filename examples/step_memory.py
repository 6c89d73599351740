"""Print what a training step would need of memory, without having that memory.

    python examples/step_memory.py --batch-size 64 --recompute
    python examples/step_memory.py --ranks 8 --layers 8 --width 1024 --limit 8  # FSDP2, one process

Put your model, batch and loss in the place of the three functions. Tensors are fake: they have
shapes and no bytes, and torch's own tracker adds up what would be alive at once.
"""

import argparse
import itertools
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.testing._internal.distributed.fake_pg import FakeStore  # registers "fake"

from camshaft import checkpoint_activations

WORDS = 50_000
GIB = 2**30


class Block(nn.Module):
    """Causal self-attention with heads of 64 numbers, and a feed-forward layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        split = self.attention(self.norm_1(x)).view(batch, time, 3, width // 64, 64)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, time, width))
        y: Tensor = x + self.feed_forward(self.norm_2(x))
        return y


def build_model(layers: int, width: int) -> nn.Module:
    """A GPT without positions."""
    model = nn.Sequential()
    model.add_module("words", nn.Embedding(WORDS, width))
    model.add_module("blocks", nn.Sequential(*(Block(width) for _ in range(layers))))
    model.add_module("head", nn.Linear(width, WORDS))
    return model


def build_batch(batch_size: int, length: int) -> tuple[Tensor, Tensor]:
    """Texts and the words that follow each of theirs."""
    words = torch.ones(batch_size, length, dtype=torch.long)
    return words, words.clone()


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The mean over all words."""
    texts, targets = batch
    return cross_entropy(model(texts).flatten(0, 1), targets.flatten())


def prepared(options: argparse.Namespace, mesh: DeviceMesh | None) -> nn.Module:
    """The model as it is trained: recomputed, and sharded, if asked for."""
    model = build_model(options.layers, options.width)
    blocks = model.get_submodule("blocks").children()
    if options.recompute:
        checkpoint_activations(model, "blocks.*")
    if mesh:
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def peak(options: argparse.Namespace, batch_size: int) -> dict[str, int]:
    """The bytes that are alive at the fullest moment of a step: of each kind, and in total."""
    mesh = init_device_mesh("cpu", (options.ranks,)) if options.ranks > 1 else None
    with FakeTensorMode():
        model = prepared(options, mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        batch = build_batch(batch_size, options.length)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *batch)
        for step in range(2):  # the second one has moments, as all later ones
            with tracker:
                loss_of(model, batch).backward()
                optimizer.step()
                optimizer.zero_grad()
            if step == 0:
                tracker.reset_mod_stats()
    (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    return {str(kind).rpartition(".")[-1]: size for kind, size in snapshot.items() if size}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the peak of the batch size that was asked for, or of all that fit."""
    parser = argparse.ArgumentParser(description="Print what a step would need of memory.")
    parser.add_argument("--ranks", type=int, default=1, help="over which FSDP2 shards the model")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--recompute", action="store_true", help="activations of the blocks")
    parser.add_argument("--batch-size", type=int, default=8, help="of one rank")
    parser.add_argument("--limit", type=float, help="GiB: double the batch while it fits")
    options = parser.parse_args(arguments)

    if options.ranks > 1:  # communication among them is fake too: this is rank 0 of all
        dist.init_process_group("fake", rank=0, world_size=options.ranks, store=FakeStore())
    for doublings in itertools.count():
        size = options.batch_size * 2**doublings
        bytes_of = peak(options, size)
        kinds = ", ".join(f"{kind} {part / GIB:.3f}" for kind, part in bytes_of.items())
        print(f"batch size {size}: {bytes_of['Total']} bytes; in GiB: {kinds}")
        if options.limit is None or bytes_of["Total"] > options.limit * GIB:
            break
    if options.ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
