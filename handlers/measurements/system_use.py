"""The use of processors, memory and energy by a run."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, ClassVar

import torch

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ...engine.checks import warn
from ..common import AT_EACH_ROW, refuse_overwriting

POWERCAP = Path("/sys/class/powercap")
GIB = 2**30
MOST_WATTS = 2000.0
"""More than a processor takes: its counter is read before it can pass zero twice."""
ADVICE = {
    "processors": "If root alone may read it: `sudo chmod a+r /sys/class/powercap/*/energy_uj` at "
    "each start of the machine. In a container: mount the folder, and write SystemUse(energy=path)",
    "the GPU": "NVIDIA's devices count it since Volta, but not for the parts of a device (MIG)",
}


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

    only_on_rank: ClassVar[None] = None
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
        """Measure when the trigger fires.

        Raises:
            ValueError: The engine has another `SystemUse`.
        """
        refuse_overwriting(self, engine.find(SystemUse), lambda _: ("cpu/process",))
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
        if state.metrics.is_fresh("cpu/process"):  # a moment ago, before the end of an epoch or run
            return
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


class Energy:
    """What a run has taken so far, in microjoules; saved as it is at the moment of the save.

    Counters of processors begin again from zero, some of them every few minutes, so a thread reads
    them too. `folder` is where they are; None if another rank reads them.
    """

    def __init__(self, folder: Path | None) -> None:
        self.taken: dict[str, int] = {}
        self.step: int = 0  # of the latest row
        self.at_step: int = 0  # what was taken until then
        self._folder, self._zones = folder, dict[Path, int]()
        self._last, self._sources = dict[object, int](), dict[str, Any]()
        self._lock, self._closed = Lock(), Event()

    def begin(self) -> None:
        """Count from now on."""
        self._closed, self._sources = Event(), {"the GPU": self._read_device}
        if self._folder is not None:
            self._sources["processors"] = self._read_zones
        self.read()
        if self._zones:
            seconds = max(0.001, min(self._zones.values()) / 1e6 / MOST_WATTS)
            Thread(target=self._watch, args=[self._closed, seconds], daemon=True).start()

    def close(self) -> None:
        """Count no more."""
        with self._lock:
            self._closed.set()
            self._sources, self._zones, self._last = {}, {}, {}

    def read(self) -> None:
        """Count what was taken since the last time; a counter that fails does not end the run."""
        for source, look in list(self._sources.items()):
            try:
                with self._lock:
                    look()
            except Exception as error:
                del self._sources[source]
                warn(f"SystemUse leaves out the energy of {source}: {error}. {ADVICE[source]}")

    def row(self, step: int) -> dict[str, float]:
        """The metrics of a row, in joules."""
        self.read()
        row = {f"energy/{kind}": taken / 1e6 for kind, taken in self.taken.items()}
        if row:
            total = sum(self.taken.values())
            row["energy"] = total / 1e6
            if step > self.step:
                row["energy/step"] = (total - self.at_step) / 1e6 / (step - self.step)
                self.step, self.at_step = step, total
        return row

    def state_dict(self) -> dict[str, Any]:
        """The values to save."""
        self.read()
        saved = {"taken": dict(self.taken), "step": self.step, "at_step": self.at_step}
        return saved | {"rank": ranks.rank()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from saved values; a rank that is new is given those of the first one."""
        self.step = saved["step"]
        if saved["rank"] == ranks.rank():
            self.taken = dict(saved["taken"])
            self.at_step = saved["at_step"]

    def _watch(self, closed: Event, seconds: float) -> None:
        while not closed.wait(seconds):
            with suppress(Exception), self._lock:  # `read` tells it
                if not closed.is_set():
                    self._read_zones()

    def _read_zones(self) -> None:
        self._zones = self._zones or _zones(self._folder or Path())
        for zone, size in self._zones.items():
            self._add("cpu", zone, int((zone / "energy_uj").read_text()), size)

    def _read_device(self) -> None:
        if torch.cuda.is_initialized():
            nvml: Any = import_module("pynvml")
            nvml.nvmlInit()
            uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
            device = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            self._add("gpu", str(uuid), nvml.nvmlDeviceGetTotalEnergyConsumption(device) * 1000)

    def _add(self, kind: str, counter: object, now: int, size: int = 0) -> None:
        last = self._last.get(counter, now)
        self._last[counter] = now
        self.taken[kind] = self.taken.get(kind, 0) + now - last + (size if now < last else 0)


def _zones(folder: Path) -> dict[Path, int]:
    """The processors, also AMD's, and memory that is counted beside them; their largest values."""
    zones = {zone: (zone / "name").read_text() for zone in sorted(folder.rglob("intel-rapl:*"))}
    chosen = [zone for zone, name in zones.items() if name.startswith(("package", "dram"))]
    if not chosen:
        raise FileNotFoundError(f"there is no counter in {folder}")
    return {zone: int((zone / "max_energy_range_uj").read_text()) for zone in chosen}
