"""The use of processors and memory by a run."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ..common import AT_EACH_ROW
from .energy import Energy

POWERCAP = Path("/sys/class/powercap")
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
    - With `energy=True`, in joules: `"energy"`, of the whole run so far, also before a resume; its
      parts, `"energy/gpu"` of the rank's device, and `"energy/cpu"` of the whole machine on its
      first rank alone; and `"energy/step"`, of an optimizer step since the last measurement.

    Needs psutil, and nvidia-ml-py for energy: `pip install "camshaft[measurements]"`.

    Args:
        when: When to measure; by default when loggers write a row.
        energy: True to measure energy; or where `/sys/class/powercap` is, if it is not there.

    Raises:
        ModuleNotFoundError: psutil or nvidia-ml-py is not installed.
        ValueError: `energy` is not a folder.
    """

    rank: ClassVar[None] = None
    """Each rank has its own, or none."""
    when: EventEnum | Trigger = AT_EACH_ROW
    _: KW_ONLY
    energy: bool | str | Path = False
    _psutil: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            import psutil

            if self.energy is not False:
                import_module("pynvml")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f'SystemUse needs {error.name}: pip install "camshaft[measurements]"'
            ) from error
        object.__setattr__(self, "_psutil", psutil)
        if not isinstance(self.energy, bool) and not os.path.isdir(str(self.energy)):
            raise ValueError(f"SystemUse(energy={self.energy!r}): needs True or a folder there is")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Measure when the trigger fires."""
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.begin)
        engine.on(self.when, stage=Stage.MEASURE)(self.measure)
        if self.energy is not False:
            engine.on(Events.CLOSED)(self.close)

    def begin(self, state: State[Any, Any]) -> None:
        """Begin the first interval."""
        process = self._process(state)
        process.cpu_percent()
        self._psutil.cpu_percent()
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
        if self.energy is not False:
            self._energy(state).begin()

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
        if self.energy is not False:
            state.metrics.update(self._energy(state).row(state.step))

    def close(self, state: State[Any, Any]) -> None:
        """Count energy no more."""
        self._energy(state).close()

    def _energy(self, state: State[Any, Any]) -> Energy:
        # Not ranks.local_rank(), which may ask all ranks.
        is_first = int(os.environ.get("LOCAL_RANK", ranks.rank())) == 0
        folder = POWERCAP if isinstance(self.energy, bool) else Path(self.energy)
        return state.recall(self, partial(Energy, folder if is_first else None))

    def _process(self, state: State[Any, Any]) -> Any:
        return state.recall(self, self._psutil.Process, saved=False)
