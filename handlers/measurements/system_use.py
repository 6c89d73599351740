"""The use of processors and memory by a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger
from ..common import AT_EACH_ROW

GIB = 2**30


@dataclass(frozen=True, eq=False)
class SystemUse:
    """Measure the use of processors, of memory and, if there is a CUDA device, of its memory.

    Each rank has its own metrics; memory is in GiB:

    - `"cpu/process"`, `"cpu/system"`: per cent since the last measurement. For the process, 100 is
      one core; for the system, 100 is all cores.
    - `"memory/process"` (resident), and `"memory/available"` on the whole machine.
    - `"gpu/allocated"`, `"gpu/reserved"`: now; `"gpu/peak"`: the largest allocation since the last
      measurement, which resets torch's own peak.

    Needs psutil: `pip install "camshaft[measurements]"`.

    Args:
        when: When to measure; by default when loggers write a row.

    Raises:
        ModuleNotFoundError: psutil is not installed.
    """

    rank: ClassVar[None] = None
    """Each rank has its own, or none."""
    when: EventEnum | Trigger = AT_EACH_ROW
    _psutil: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            import psutil
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                'SystemUse needs psutil: pip install "camshaft[measurements]"'
            ) from error
        object.__setattr__(self, "_psutil", psutil)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Measure when the trigger fires."""
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.begin)
        engine.on(self.when, stage=Stage.MEASURE)(self.measure)

    def begin(self, state: State[Any, Any]) -> None:
        """Begin the first interval."""
        process = self._process(state)
        process.cpu_percent()
        self._psutil.cpu_percent()
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()

    def measure(self, state: State[Any, Any]) -> None:
        """Write the metrics, without waiting for the device."""
        process = self._process(state)
        state.metrics["cpu/process"] = process.cpu_percent()
        state.metrics["cpu/system"] = self._psutil.cpu_percent()
        state.metrics["memory/process"] = process.memory_info().rss / GIB
        state.metrics["memory/available"] = self._psutil.virtual_memory().available / GIB
        if torch.cuda.is_initialized():
            state.metrics["gpu/allocated"] = torch.cuda.memory_allocated() / GIB
            state.metrics["gpu/reserved"] = torch.cuda.memory_reserved() / GIB
            state.metrics["gpu/peak"] = torch.cuda.max_memory_allocated() / GIB
            torch.cuda.reset_peak_memory_stats()

    def _process(self, state: State[Any, Any]) -> Any:
        return state.recall(self, self._psutil.Process, saved=False)
