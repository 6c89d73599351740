"""accelerate, for the loop that one owns: it prepares the objects, and the loop is the raw one."""

import os
from pathlib import Path
from typing import Any

import task
from accelerate import Accelerator
from tensorboardX import SummaryWriter
from tqdm import tqdm


def prepared(loader: task.TimedLoader, steps: int | None = None) -> tuple[Any, ...]:
    """The accelerator, and what it makes of model, optimizer, loader and schedule."""
    accelerator = Accelerator(cpu=True)
    model = task.make_model()
    optimizer = task.make_optimizer(model)
    objects: list[Any] = [model, optimizer, loader]
    if steps is not None:
        objects.append(task.make_schedule(optimizer, steps))
    return accelerator, *accelerator.prepare(*objects)


def plain(loader: task.TimedLoader, epochs: int) -> None:
    """Forward, backward, step, as its documentation shows them."""
    accelerator, model, optimizer, batches = prepared(loader)
    for _ in range(epochs):
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = task.loss_fn(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()


def everything(loader: task.TimedLoader, epochs: int, directory: Path) -> None:
    """The same with clipping, schedule, TensorBoard, `save_state` and a progress bar."""
    accelerator, model, optimizer, batches, schedule = prepared(loader, epochs * len(loader))
    writer = SummaryWriter(str(directory))
    parameters = list(model.parameters())
    saved: list[Path] = []
    step = 0
    for epoch in range(epochs):
        bar = tqdm(batches, desc=f"epoch {epoch}")
        for inputs, targets in bar:
            optimizer.zero_grad()
            loss = task.loss_fn(model(inputs), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(parameters, task.MAX_NORM)
            optimizer.step()
            schedule.step()
            step += 1
            if step % task.LOG_EVERY == 0:
                value = loss.item()
                writer.add_scalar("loss", value, step)
                bar.set_postfix(loss=value, refresh=False)
            if step % task.SAVE_EVERY == 0:
                saved.append(directory / str(step))
                accelerator.save_state(str(saved[-1]))
                if len(saved) > task.KEEP:
                    remove(saved.pop(0))
    writer.close()


def remove(directory: Path) -> None:
    """Drop an older state."""
    for each in directory.iterdir():
        os.unlink(each)
    directory.rmdir()
