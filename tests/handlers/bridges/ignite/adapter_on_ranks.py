"""Run on two ranks: metrics of ignite on both engines, with other data on each rank."""

import json
import sys
from pathlib import Path

import ignite.distributed as idist
from ignite.engine import Events
from ignite.handlers import EarlyStopping
from ignite.metrics import Accuracy, ConfusionMatrix, Recall, RunningAverage
from sides import ByCamshaft, ByIgnite, batches, same

from camshaft.handlers import Checkpoint


def attach(side):
    for name, metric in {
        "accuracy": Accuracy(),
        "confusion": ConfusionMatrix(3),
        "recall": Recall(average=False).mean(),
        "running": RunningAverage(output_transform=lambda output: output["loss"]),
    }.items():
        metric.attach(side.trainer, name)
    stopping = EarlyStopping(1, lambda engine: -engine.state.epoch, side.trainer)
    side.trainer.add_event_handler(Events.EPOCH_COMPLETED, stopping)
    seen = []

    @side.trainer.on(Events.ITERATION_COMPLETED | Events.EPOCH_COMPLETED)
    def note(engine):
        seen.append(dict(engine.state.metrics))

    return seen


def resumable(folder, stop=None):
    side = ByCamshaft()
    seen = attach(side)
    side.engine.add(Checkpoint(folder, resume=True))
    if stop:
        side.trainer.add_event_handler(
            Events.ITERATION_COMPLETED(once=stop), lambda engine: engine.interrupt()
        )
    side.run(data)
    return side, seen


idist.initialize("gloo")
directory = Path(sys.argv[1])
data = batches(idist.get_rank())
sides = [ByIgnite(), ByCamshaft()]
both = [attach(side) for side in sides]
for side in sides:
    side.run(data)
whole = resumable(directory / "whole")
first = resumable(directory / "cut", stop=4)
second = resumable(directory / "cut")
found = {
    "equal": same(*both) and same(sides[0].weights(), sides[1].weights()),
    "count": int(both[1][-1]["confusion"].sum()),
    "stopped": [sides[0].trainer.state.epoch, sides[1].state.epoch],
    "interrupted": first[0].state.iteration,
    "resumed": same(whole[1], first[1] + second[1]),
    "weights": same(list(whole[0].model.parameters()), list(second[0].model.parameters())),
}
(directory / f"rank-{idist.get_rank()}.json").write_text(json.dumps(found))
idist.finalize()
