"""Run on two ranks: handlers of ignite on both engines, with other data on each rank."""

import json
import math
import sys
import warnings
from pathlib import Path

import ignite.distributed as idist
from ignite.engine import Events
from ignite.handlers import BasicTimeProfiler, EarlyStopping, TerminateOnNan
from ignite.handlers.tensorboard_logger import TensorboardLogger
from sides import ByCamshaft, ByIgnite, Everything, batches, both, found_rates, same

from camshaft.handlers import Checkpoint

warnings.simplefilter("ignore")  # of ignite's finder of learning rates


def attach(side, folder=None):
    """Attach everything to one side, and on rank 0 a logger."""
    folder = folder or directory / type(side).__name__
    given = Everything(side, folder)
    given.timer = BasicTimeProfiler()
    given.timer.attach(side.trainer)
    if idist.get_rank() == 0:
        board = TensorboardLogger(log_dir=folder / "board")
        board.attach_output_handler(
            side.trainer, Events.EPOCH_COMPLETED, tag="training", metric_names="all"
        )
        side.trainer.add_event_handler(Events.COMPLETED, lambda engine: board.close())
    return given


def resumable(name, stop=None):
    side = ByCamshaft()
    given = attach(side, directory / name)
    side.engine.add(Checkpoint(directory / name / "run", resume=True))
    if stop:
        side.trainer.add_event_handler(
            Events.ITERATION_COMPLETED(once=stop), lambda engine: engine.interrupt()
        )
    side.run(data)
    return given


def stop_early(side):
    stopping = EarlyStopping(1, lambda engine: -engine.state.epoch, side.trainer)
    side.trainer.add_event_handler(Events.EPOCH_COMPLETED, stopping)


def end_by_nan(side):
    nan = TerminateOnNan(lambda output: output["loss"])
    side.trainer.add_event_handler(Events.ITERATION_COMPLETED, nan)


idist.initialize("gloo")
directory = Path(sys.argv[1])
data = batches(idist.get_rank())
given, _ = both(attach, data)
idist.barrier()  # until rank 0 has written all files
one, other = [{**each.results(), "measured": sorted(each.timer.get_results())} for each in given]
whole, first, second = resumable("whole"), resumable("cut", stop=4), resumable("cut")
damaged = [(inputs * math.nan if n == 3 else inputs, y) for n, (inputs, y) in enumerate(data)]
_, stopped = both(stop_early, data)
_, ended = both(end_by_nan, damaged)
found = {
    "unequal": [name for name in one if not same(one[name], other[name])],
    "count": int(other["metrics"][-1][1]["confusion"].sum()),
    "files": len(one["files"]),
    "shown": "Epoch [3/3]: [6/6]" in one["console"],
    "rates": len(set(one["rates"])) > 10,
    "stopped": [each.trainer.state.epoch for each in stopped],
    "interrupted": first.side.state.iteration,
    "resumed": same(whole.metrics, first.metrics + second.metrics),
    "remembered": same(whole.remembered(), second.remembered()),
    "ended": [each.trainer.state.iteration for each in ended],
    "finders": found_rates(ByIgnite, data) == found_rates(ByCamshaft, data),
}
(directory / f"rank-{idist.get_rank()}.json").write_text(json.dumps(found))
idist.finalize()
