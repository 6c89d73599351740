"""Run with handlers of ignite that remember something; the process may be killed in mid-epoch."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from ignite.engine import Events
from ignite.handlers import CosineAnnealingScheduler, EMAHandler
from ignite.metrics import Accuracy, RunningAverage
from sides import BATCHES, EPOCHS, ByCamshaft, batches

from camshaft import Events as OurEvents
from camshaft.handlers import Checkpoint

folder, kill_at = Path(sys.argv[1]), int(sys.argv[2])
side = ByCamshaft()
cosine = CosineAnnealingScheduler(side.optimizer, "lr", 0.2, 0.01, BATCHES * EPOCHS)
side.trainer.add_event_handler(Events.ITERATION_STARTED, cosine)
average = EMAHandler(side.model, 0.1, momentum_warmup=0.5, warmup_iters=7)
average.attach(side.trainer)
Accuracy().attach(side.trainer, "accuracy")
running = RunningAverage(output_transform=lambda output: output["loss"])
running.attach(side.trainer, "running")
every = OurEvents.ITERATION_COMPLETED(every=4, last=True)
side.engine.add(Checkpoint(folder, when=every, resume=True, background=False))


@side.engine.on(OurEvents.ITERATION_STARTED)
def end(state):
    if state.iteration == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


side.run(batches())
tensors = [*side.weights().values(), *average.ema_model.state_dict().values()]
told = [value.double().flatten().tolist() for value in tensors if isinstance(value, torch.Tensor)]
print(json.dumps([told, dict(side.state.metrics), side.optimizer.param_groups[0]["lr"]]))
