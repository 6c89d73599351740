"""Run on any number of ranks: trains on a stream over shards, and may be killed at an iteration."""

import json
import os
import signal
import sys
from pathlib import Path
from shelve import Shelf

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from camshaft import Events, ShardedStream, ranks, supervised
from camshaft.handlers import Checkpoint

SIZES = [7, 12, 0, 9, 30, 4, 18, 1, 11, 6, 16, 25]


def read(shard, start):
    """The samples of a shard: each tells where it is from, and has noise."""
    for place in range(start, SIZES[shard]):
        x = torch.tensor([shard % 5, place % 7, 1.0], dtype=torch.float64)
        yield torch.tensor([shard, place]), x + torch.rand(3), x.sum(0, keepdim=True) / 7


def main():
    directory, stage, plan = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    wrapped = DistributedDataParallel(model) if ranks.world_size() > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    engine = supervised(
        wrapped,
        optimizer,
        nn.functional.mse_loss,
        device="cpu",
        accumulate=plan.get("accumulate", 1),
        prepare_batch=lambda batch: batch[1:],
    )
    often = Events.ITERATION_COMPLETED(every=2)
    engine.add(Checkpoint(directory / "run", when=often, background=False, resume=True))
    seen = Shelf({})  # of this part, and of no run: a list that is read here would go on

    @engine.on(Events.ITERATION_COMPLETED)
    def note(state):
        ids = state.batch[0].tolist() if state.share else []
        rows = torch.cat(state.batch[1:], 1).tolist() if state.share else []
        seen[str(len(seen))] = state.epoch, state.iteration, state.share, ids, rows
        (directory / f"{stage}-{ranks.rank()}.json").write_text(
            json.dumps({"seen": [*seen.values()]})
        )
        if state.iteration == plan.get("killed_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    stream = ShardedStream(range(len(SIZES)), read, shuffle_buffer=10, open_shards=3, seed=2)
    loader = DataLoader(stream, plan["batch"], num_workers=plan.get("workers", 0))
    if stop_at := plan.get("stop_at"):
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.interrupt("enough"))
        engine.on(stop)(lambda state: state.save("enough"))
    state = engine.run(loader, **{"max_epochs": 2} | plan.get("limits", {}))
    evaluated = []
    engine.evaluation.on(Events.ITERATION_COMPLETED)(
        lambda state: evaluated.extend(state.batch[0].tolist())
    )
    engine.evaluate(loader)
    weights = [each.detach().flatten() for each in model.parameters()]
    told = {"weights": torch.cat(weights).tolist(), "reason": state.stop_reason}
    found = {"seen": [*seen.values()], **told}
    found["evaluated"] = evaluated
    (directory / f"{stage}-{ranks.rank()}.json").write_text(json.dumps(found))


with ranks.process_group():
    main()
    ranks.gathered(None)
