"""Floating-point operations: how many a step takes, and how many a device can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10": 125e12,
    "V100": 125e12,
    "T4": 65e12,
}
"""Dense bfloat16 (float16 before the A100) by NVIDIA's data sheets; the first name that fits."""


def peak_of_device(name: str | None = None) -> float | None:
    """The peak FLOPs per second of a device; None if it is unknown.

    >>> peak_of_device("NVIDIA H100 80GB HBM3")
    989000000000000.0
    """
    if name is None:
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    words = name.replace("-", " ")
    return next((peak for key, peak in PEAKS.items() if f" {key} " in f" {words} "), None)


@dataclass
class Flops:
    """The FLOPs of a sample, once they are counted; saved with the run.

    A resumed run does not count again: counting may change the bits of the counted step.
    """

    per_sample: float | None = None


class Counter:
    """Counts FLOPs by torch's own formulas, from when it is made until `stop`."""

    def __init__(self) -> None:
        from torch.utils.flop_counter import FlopCounterMode

        self._mode: Any = FlopCounterMode(display=False)
        self._mode.__enter__()

    def stop(self) -> float:
        """Stop counting; return the number."""
        self._mode.__exit__(None, None, None)
        return float(self._mode.get_total_flops())
