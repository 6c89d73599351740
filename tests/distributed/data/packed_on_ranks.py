"""Run on any number of ranks: trains on rows of texts, and on batches of texts by tokens."""

import json
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from camshaft import (
    Events,
    LengthBatches,
    Packed,
    Padded,
    count_next_tokens,
    loader,
    ranks,
    supervised,
)
from camshaft.handlers import Checkpoint

TEXTS = [[number, *range(1, 1 + number % 9)] for number in range(90)]
PAD = Padded(fields={"labels": -100})


def rows():
    return loader(Packed(TEXTS, max_tokens=18, window=25), 4, training=True, num_workers=1)


def by_tokens():
    texts = [dict.fromkeys(("input_ids", "labels"), torch.tensor(text)) for text in TEXTS]
    batches = LengthBatches(map(len, TEXTS), max_tokens=40, pool=3)
    return DataLoader(texts, batch_sampler=batches, collate_fn=PAD)


def loss_fn(made, labels):
    return cross_entropy(made[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def prepared(batch):
    return batch["input_ids"], batch["labels"]


def train(directory, kind, stop_at):
    torch.manual_seed(0)
    model = torch.nn.Embedding(100, 100, dtype=torch.float64)
    wrapped = DistributedDataParallel(model) if ranks.world_size() > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    engine = supervised(
        wrapped, optimizer, loss_fn, weight=count_next_tokens, prepare_batch=prepared
    )
    engine.add(Checkpoint(directory / kind.__name__, when=Events.COMPLETED, resume=True))
    seen = {}

    @engine.on(Events.ITERATION_COMPLETED)
    def note(state):
        tokens = state.batch["input_ids"] if state.share else torch.zeros(0, 0)
        seen[state.iteration] = [sorted(filter(None, row)) for row in tokens.tolist()]

    if stop_at:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.interrupt("enough"))
        engine.on(stop)(lambda state: state.save("enough"))
    state = engine.run(kind(), max_epochs=2)
    weights = model.weight.detach().flatten().tolist()
    return {"seen": seen, "weights": weights, "reason": state.stop_reason}


def main():
    directory, stage, stop_at = sys.argv[1:]
    directory = Path(directory)
    found = {kind.__name__: train(directory, kind, int(stop_at)) for kind in (rows, by_tokens)}
    try:  # one text a batch: on several ranks, the others would have none
        LengthBatches([9] * 9, max_tokens=9)
    except ValueError as error:
        found["refused"] = str(error)
    (directory / f"{stage}-{ranks.rank()}.json").write_text(json.dumps(found))


with ranks.process_group():
    main()
    ranks.gathered(None)
