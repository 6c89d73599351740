"""Plain PyTorch: the loop that a careful person writes by hand."""

import os
from pathlib import Path
from typing import Any

import task
import torch


def process(batch: int) -> None:
    """The empty process function."""


def handler(iteration: int) -> None:
    """The empty handler."""


def empty(data: task.TimedRange, epochs: int, handlers: int, every: int) -> None:
    """Call `process` once a batch, then the handlers whose turn it is."""
    functions = [handler] * handlers
    iteration = 0
    for _ in range(epochs):
        for batch in data:
            iteration += 1
            process(batch)
            for function in functions:
                if every == 1 or iteration % every == 0:
                    function(iteration)


def loading(loader: task.TimedLoader, epochs: int) -> None:
    """Take the batches and do nothing: a share of every step that no engine has a hand in."""
    for _ in range(epochs):
        for _batch in loader:
            pass


def plain(loader: task.TimedLoader, epochs: int) -> None:
    """Forward, backward, step."""
    model = task.make_model()
    optimizer = task.make_optimizer(model)
    for _ in range(epochs):
        for inputs, targets in loader:
            loss = task.loss_fn(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def frugal(loader: task.TimedLoader, epochs: int) -> None:
    """The same for those who know what `zero_grad` costs."""
    model = task.make_model()
    optimizer = task.make_optimizer(model)
    parameters = list(model.parameters())
    for _ in range(epochs):
        for inputs, targets in loader:
            loss = task.loss_fn(model(inputs), targets)
            loss.backward()
            optimizer.step()
            for parameter in parameters:
                parameter.grad = None


def everything(loader: task.TimedLoader, epochs: int, directory: Path) -> None:
    """The same with clipping, schedule, TensorBoard, checkpoints and a progress bar."""
    from tensorboardX import SummaryWriter
    from tqdm import tqdm

    model = task.make_model()
    optimizer = task.make_optimizer(model)
    schedule = task.make_schedule(optimizer, epochs * len(loader))
    writer = SummaryWriter(str(directory))
    saved: list[Path] = []
    parameters = list(model.parameters())
    step = 0
    for epoch in range(epochs):
        bar = tqdm(loader, desc=f"epoch {epoch}")
        for inputs, targets in bar:
            loss = task.loss_fn(model(inputs), targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, task.MAX_NORM)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % task.LOG_EVERY == 0:
                value = loss.item()
                writer.add_scalar("loss", value, step)
                bar.set_postfix(loss=value, refresh=False)
            if step % task.SAVE_EVERY == 0:
                saved.append(directory / f"{step}.pt")
                save(saved[-1], step, model=model, optimizer=optimizer, schedule=schedule)
                if len(saved) > task.KEEP:
                    saved.pop(0).unlink()
    writer.close()


def save(path: Path, step: int, **objects: Any) -> None:
    """Write beside the place, then rename, so that no half file bears the name."""
    beside = path.with_suffix(".tmp")
    states: dict[str, Any] = {name: each.state_dict() for name, each in objects.items()}
    states |= {"step": step, "rng": torch.get_rng_state()}
    with beside.open("wb") as file:
        torch.save(states, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
