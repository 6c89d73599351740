"""Two loops in one process that take turns, by the device's clock; and how often each waits."""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from statistics import median, quantiles
from typing import Any

import torch

WARMING = 5
"""Steps before waits are counted."""
SAID = "synchronizing"
"""What torch's warning of a wait says."""


class Clock:
    """Seconds between `begin` and `end`, when the device has done all that was queued between."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.began: Any = None

    def begin(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self.began = torch.cuda.Event(enable_timing=True)
            self.began.record()
        else:
            self.began = time.perf_counter()

    def end(self) -> float:
        if self.device.type != "cuda":
            return time.perf_counter() - float(self.began)
        ended = torch.cuda.Event(enable_timing=True)
        ended.record()
        torch.cuda.synchronize(self.device)
        return float(self.began.elapsed_time(ended)) / 1000


class Turns:
    """Batches whose passes are timed; before each pass, the raw loop has its turn.

    So the engine makes one run, as a user's does, and its start is not counted.
    """

    def __init__(
        self, batches: list[Any], steps: int, raw: Callable[[Any], object], device: torch.device
    ) -> None:
        self.batches, self.steps, self.raw = batches, steps, raw
        self.clock = Clock(device)
        self.of_raw: list[float] = []
        self.of_engine: list[float] = []
        self.is_open = False

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        self.close()
        self.clock.begin()
        for batch in islice(cycle(self.batches), self.steps):
            self.raw(batch)
        self.of_raw.append(self.clock.end())
        self.clock.begin()
        self.is_open = True
        return islice(cycle(self.batches), self.steps)

    def close(self) -> None:
        """End the engine's turn."""
        if self.is_open:
            self.of_engine.append(self.clock.end())
        self.is_open = False

    def ratios(self) -> list[float]:
        """The engine's time in that of the raw loop, of each turn but the first, which warms up."""
        self.close()
        pairs = zip(self.of_engine, self.of_raw, strict=True)
        return [ours / raw for ours, raw in list(pairs)[1:]]

    def seconds(self) -> float:
        """The raw loop's seconds a step."""
        return median(self.of_raw[1:]) / self.steps


def spread(ratios: list[float]) -> str:
    """The median, and the middle half in brackets."""
    if len(ratios) < 2:
        return f"{ratios[0]:.3f}"
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def waits(loop: Callable[[Iterable[Any]], object], batches: list[Any], steps: int) -> float | None:
    """How often a step of a loop waits for the device, as torch sees it; None without a device."""
    if not torch.cuda.is_initialized():
        loop(islice(cycle(batches), WARMING + steps))
        return None

    def watched() -> Iterator[Any]:
        try:
            for number, batch in enumerate(islice(cycle(batches), WARMING + steps)):
                if number == WARMING:
                    torch.cuda.set_sync_debug_mode("warn")
                yield batch
        finally:
            torch.cuda.set_sync_debug_mode("default")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop(watched())
        torch.cuda.set_sync_debug_mode("default")
    return sum(SAID in str(each.message) for each in caught) / steps
