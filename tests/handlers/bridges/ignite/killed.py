"""Run with handlers of ignite that remember something; the process may be killed in mid-epoch."""

import json
import os
import signal
import sys
from pathlib import Path

from sides import ByCamshaft, Everything, batches

from camshaft import Events
from camshaft.handlers import Checkpoint

folder, kill_at = Path(sys.argv[1]), int(sys.argv[2])
side = ByCamshaft()
everything = Everything(side, folder / "pt")
every = Events.ITERATION_COMPLETED(every=4, last=True)
side.engine.add(Checkpoint(folder / "run", when=every, resume=True, background=False))


@side.engine.on(Events.ITERATION_STARTED)
def end(state):
    if state.iteration == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


side.run(batches())
tensors = [*side.weights().values(), *everything.average.ema_model.state_dict().values()]
values = [value.double().flatten().tolist() for value in tensors]
metrics = {name: str(value) for name, value in side.state.metrics.items()}
print(json.dumps([values, metrics, side.optimizer.param_groups[0]["lr"]]))
