"""Run as one of two ranks: only rank 1 gets a signal, only rank 0's clock moves on."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import ignite.distributed as idist

from camshaft import Engine, Events, Stage
from camshaft.handlers import Checkpoint, StopAfter, StopOnSignal

directory = Path(sys.argv[1])
idist.initialize("gloo")
rank = idist.get_rank()


def process(state, batch):
    if rank == 0:
        now = state.control.began + 10 * state.iteration
        time.monotonic = lambda: now


engine = Engine(process, Checkpoint(directory / "run", resume=True), StopAfter(seconds=65))
stopped = engine.run(range(20), max_epochs=3).iteration
engine = Engine(process, Checkpoint(directory / "run", resume=True))
engine.add(StopOnSignal(wait=0.2, exit_code=99))
if rank == 1:  # when the ranks have asked each other, so that iteration 9 is to be the last

    @engine.on(Events.ITERATION_COMPLETED(at=8), stage=Stage.REPORT)
    def kill(state):
        signal.raise_signal(signal.SIGTERM)


seen = []
engine.on(Events.CLOSED)(seen.append)
try:
    engine.run(range(20), max_epochs=3)
except SystemExit as error:
    result = {"by the clock": stopped, "by the signal": seen[0].iteration, "code": error.code}
(directory / f"rank-{rank}.json").write_text(json.dumps(result))
while not (directory / f"rank-{1 - rank}.json").exists():  # the other may still be reading from us
    time.sleep(0.01)
os._exit(0)  # gloo's threads may abort when they are torn down
