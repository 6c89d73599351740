"""The energy that a run takes, by the counters of processors and GPUs."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import torch

from ...engine import ranks
from ...engine.checks import warn

MOST_WATTS = 2000.0
"""More than a processor takes: its counter is read before it can pass zero twice."""
ADVICE = {
    "processors": "If root alone may read it: `sudo chmod a+r /sys/class/powercap/*/energy_uj` at "
    "each start of the machine. In a container: mount the folder, and write SystemUse(energy=path)",
    "the GPU": "NVIDIA's devices count it since Volta, but not for the parts of a device (MIG)",
}


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
