"""Camshaft, as its documentation shows it."""

from pathlib import Path

import task

from camshaft import Engine, Events, State, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, LRSchedule, ProgressBar, TensorBoard, latest


def empty(data: task.TimedRange, epochs: int, handlers: int, every: int) -> None:
    """An engine whose process function and handlers do nothing."""
    engine: Engine[int, None] = Engine(process)
    event = Events.ITERATION_COMPLETED
    for _ in range(handlers):
        engine.on(event if every == 1 else event(every=every))(lambda state: None)
    engine.run(data, max_epochs=epochs)


def process(state: State[int, None], batch: int) -> None:
    """The empty process function."""


def plain(loader: task.TimedLoader, epochs: int) -> None:
    """`supervised` without handlers."""
    model = task.make_model()
    engine = supervised(model, task.make_optimizer(model), task.loss_fn)
    engine.run(loader, max_epochs=epochs)


def everything(loader: task.TimedLoader, epochs: int, directory: Path) -> None:
    """`supervised` with the handlers that are there for it."""
    model = task.make_model()
    optimizer = task.make_optimizer(model)
    engine = supervised(model, optimizer, task.loss_fn)
    logged = Events.ITERATION_COMPLETED(every=task.LOG_EVERY)
    saved = Events.ITERATION_COMPLETED(every=task.SAVE_EVERY)
    engine.add(
        ClipGradNorm(task.MAX_NORM),
        LRSchedule(task.make_schedule(optimizer, epochs * len(loader))),
        TensorBoard(directory / "logs", when=logged),
        Checkpoint(directory / "checkpoints", when=saved, keep=latest(task.KEEP)),
        ProgressBar(),
    )
    engine.run(loader, max_epochs=epochs)
