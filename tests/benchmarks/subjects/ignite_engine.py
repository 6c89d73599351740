"""pytorch-ignite, with its own handlers."""

from pathlib import Path
from typing import Any

import task
import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, ProgressBar, TensorboardLogger
from ignite.handlers.param_scheduler import LRScheduler


def empty(data: task.TimedRange, epochs: int, handlers: int, every: int) -> None:
    """An engine whose process function and handlers do nothing."""
    engine = Engine(process)
    event = Events.ITERATION_COMPLETED
    for _ in range(handlers):
        when = event if every == 1 else event(every=every)
        engine.add_event_handler(when, lambda engine: None)
    engine.run(data, max_epochs=epochs)


def process(engine: Engine, batch: int) -> None:
    """The empty process function."""


def plain(loader: task.TimedLoader, epochs: int) -> None:
    """`create_supervised_trainer` without handlers."""
    model = task.make_model()
    engine = create_supervised_trainer(model, task.make_optimizer(model), task.loss_fn)
    engine.run(loader, max_epochs=epochs)


def everything(loader: task.TimedLoader, epochs: int, directory: Path) -> None:
    """A step by hand, since that is where ignite wants the clipping, and its handlers."""
    model = task.make_model()
    optimizer = task.make_optimizer(model)
    schedule = task.make_schedule(optimizer, epochs * len(loader))
    parameters = list(model.parameters())

    def step(engine: Engine, batch: Any) -> torch.Tensor:
        inputs, targets = batch
        optimizer.zero_grad()
        loss = task.loss_fn(model(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, task.MAX_NORM)
        optimizer.step()
        return loss.detach()

    engine = Engine(step)
    every_step = Events.ITERATION_COMPLETED
    engine.add_event_handler(every_step, LRScheduler(schedule))
    logger = TensorboardLogger(log_dir=str(directory))
    logger.attach_output_handler(
        engine,
        every_step(every=task.LOG_EVERY),
        tag="training",
        output_transform=lambda loss: {"loss": loss},
    )
    objects = {"model": model, "optimizer": optimizer, "schedule": schedule, "engine": engine}
    checkpoint = Checkpoint(objects, DiskSaver(str(directory / "saved")), n_saved=task.KEEP)
    engine.add_event_handler(every_step(every=task.SAVE_EVERY), checkpoint)
    ProgressBar().attach(engine, output_transform=lambda loss: {"loss": loss})
    engine.run(loader, max_epochs=epochs)
    logger.close()
