"""What a save of 4 GB costs, from a GPU to the disk: seconds training waits, and until durable."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from models import Sizes
from torch import Tensor, nn

from camshaft import Engine, Events, Stage
from camshaft.handlers import Checkpoint, latest


@dataclass
class Save:
    """Medians over all saves but the first, which makes the memory that later ones use again."""

    bytes: int
    copy: float
    """Seconds of a copy of each tensor into pinned memory that is there already."""
    write: float
    """Seconds of a plain write of as many bytes, with fsync."""
    waits: float
    durable: float
    first: float
    """Seconds that training waits for the first save."""


def measured(sizes: Sizes, device: torch.device, directory: Path) -> Save:
    """Save a model with Adam's moments several times."""
    layers = (nn.Linear(sizes.square, sizes.square, device=device) for _ in range(sizes.squares))
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device.type == "cuda")
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    moments = [each for state in optimizer.state.values() for each in state.values()]
    tensors = [each.detach() for each in (*model.state_dict().values(), *moments)]
    copies, write = copied(tensors, sizes.saves, device), written(tensors, directory)
    waits, durable = saved(model, optimizer, directory, sizes.saves)
    return Save(
        **{"bytes": sum(each.nbytes for each in tensors), "copy": median(copies), "write": write},
        **{"waits": median(waits[1:]), "durable": median(durable[1:]), "first": waits[0]},
    )


def copied(tensors: list[Tensor], times: int, device: torch.device) -> list[float]:
    """Seconds of copies into pinned memory."""
    pinned = device.type == "cuda"
    buffers = [torch.empty(each.shape, dtype=each.dtype, pin_memory=pinned) for each in tensors]
    found = []
    for _ in range(times):
        _synchronize(device)
        began = perf_counter()
        for buffer, tensor in zip(buffers, tensors, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        _synchronize(device)
        found.append(perf_counter() - began)
    return found


def written(tensors: list[Tensor], directory: Path) -> float:
    """Seconds of one plain file of these bytes."""
    flat = (each.cpu().reshape(-1) for each in tensors)
    content = [memoryview(each.view(torch.uint8).numpy()) for each in flat]
    path = directory / "plain"
    began = perf_counter()
    with path.open("wb", buffering=0) as file:
        for part in content:
            for begin in range(0, len(part), 2**24):
                file.write(part[begin : begin + 2**24])
        os.fsync(file.fileno())
    seconds = perf_counter() - began
    path.unlink()
    return seconds


def saved(
    model: nn.Module, optimizer: Any, directory: Path, times: int
) -> tuple[list[float], list[float]]:
    """Seconds that a run waits for each save, and until each is on the disk."""
    handler = Checkpoint(directory / "run", when=Events.ITERATION_COMPLETED, keep=latest(1))
    began: list[float] = []
    waits: list[float] = []
    durable: list[float] = []

    class Note(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("saved"):
                durable.append(perf_counter() - began[-1])

    logger, note = logging.getLogger("camshaft"), Note()
    logger.setLevel(logging.INFO)
    logger.addHandler(note)
    engine: Engine[int, None] = Engine(
        lambda state, batch: None, objects={"model": model, "optimizer": optimizer}
    )
    engine.on(Events.SAVING, stage=Stage.MEASURE)(lambda state: began.append(perf_counter()))
    engine.add(handler)
    engine.on(Events.SAVING, stage=Stage.REPORT)(
        lambda state: waits.append(perf_counter() - began[-1])
    )
    engine.on(Events.ITERATION_STARTED)(handler.wait)
    engine.run(range(times), max_epochs=1)
    logger.removeHandler(note)
    return waits, durable


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
