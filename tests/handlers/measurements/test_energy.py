"""Energy, by counters that are files made here, and by a stand-in for NVIDIA's library."""

import json
import os
import sys
import tempfile
import time
import types
from pathlib import Path
from shelve import Shelf

import pytest
import torch

from camshaft import Engine, Events, Stage, supervised
from camshaft.handlers import Checkpoint, JSONLines, SystemUse

EACH = Events.ITERATION_COMPLETED
RANGE = 262_143_000_000
"""Microjoules at which the counters begin again from zero, as those of many processors."""


ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio:0": "package-0",
}


class Machine:
    """The folders of a machine with two processors, one of which counts its memory apart."""

    def __init__(self, root):
        self.devices, self.folder = root / "devices", root / "class" / "powercap"
        self.counters = Shelf({})  # of the world, not the run
        self.counters.update(dict.fromkeys(ZONES, RANGE - 5_000_000))
        self.folder.mkdir(parents=True)
        for zone, name in ZONES.items():
            control, *parts = zone.split(":")
            nested = [":".join([control, *parts[: n + 1]]) for n in range(len(parts))]
            (device := self.devices.joinpath(control, *nested)).mkdir(parents=True)
            (self.folder / zone).symlink_to(device)
            (device / "name").write_text(f"{name}\n")
            (device / "max_energy_range_uj").write_text(f"{RANGE}\n")
            if not (self.folder / control).exists():
                (self.folder / control).symlink_to(self.devices / control)
        self.take(0)

    def take(self, microjoules):
        """Let each counter go on, and begin again where it has to."""
        for zone, now in self.counters.items():
            self.counters[zone] = (now + microjoules) % RANGE
            (self.folder / zone / "energy_uj").write_text(f"{self.counters[zone]}\n")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "sys")


def rows_of(engine, data, **limits):
    rows = []
    engine.on(EACH, stage=Stage.REPORT)(lambda state: rows.append(_energy(state.metrics)))
    engine.run(data, **(limits or {"max_epochs": 1}))
    return rows


def _energy(metrics):
    return {name: value for name, value in metrics.items() if name.startswith("energy")}


@pytest.mark.parametrize("folder", ["folder", "devices"])
def test_processors_and_their_memory_are_counted_once_in_joules_from_the_start_of_the_run(
    machine, folder
):
    def step(state, batch):
        machine.take(batch)

    engine = Engine(step, SystemUse(when=EACH, energy=getattr(machine, folder)))
    machine.take(1_000_000)  # before the run
    rows = rows_of(engine, [2_000_000, 0, 9_000_000])  # the last one passes zero
    assert rows == [
        {"energy": 6.0, "energy/cpu": 6.0},
        {"energy": 6.0, "energy/cpu": 6.0},
        {"energy": 33.0, "energy/cpu": 33.0},
    ]


def test_another_run_begins_at_zero_and_one_that_is_carried_on_leaves_out_the_time_between(machine):
    engine = Engine(lambda state, batch: machine.take(batch))
    engine.add(SystemUse(when=EACH, energy=str(machine.folder)))
    state = engine.run([1_000_000], max_epochs=1)
    assert state.metrics["energy"] == 3.0
    machine.take(50_000_000)
    assert engine.run([1_000_000], max_epochs=1).metrics["energy"] == 3.0
    machine.take(50_000_000)
    assert engine.run([1_000_000], max_epochs=2, state=state).metrics["energy"] == 6.0


def training(machine, directory, energy=True):
    """A run with a row after every third iteration; each iteration takes its number."""
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss, accumulate=2)
    rows = EACH(every=3)
    engine.add(SystemUse(when=rows, energy=energy and machine.folder))
    engine.add(Checkpoint(directory / "run", when=EACH(at=(2, 5)), resume=True))
    engine.add(JSONLines(directory / "rows", when=rows))
    engine.on(Events.ITERATION_STARTED)(lambda state: machine.take(state.iteration * 1_000_000))
    return engine


DATA = [(torch.ones(1, 1), torch.ones(1, 1))] * 3


def energies(directory):
    rows = map(json.loads, (directory / "rows").read_text().splitlines())
    return [_energy(row) for row in rows]


def test_a_step_takes_what_was_taken_since_the_last_row(machine, tmp_path):
    training(machine, tmp_path).run(DATA, max_epochs=2)
    assert energies(tmp_path) == [
        {"energy": 18.0, "energy/cpu": 18.0, "energy/step": 9.0},  # 1 + 2 + 3, three times, 2 steps
        {"energy": 63.0, "energy/cpu": 63.0, "energy/step": 22.5},  # 4 + 5 + 6
    ]


@pytest.mark.parametrize("killed_at", [3, 4, 6])
def test_a_resumed_run_goes_on_from_the_save_and_leaves_out_what_was_lost(
    machine, tmp_path, killed_at
):
    def kill(state):
        raise KeyboardInterrupt

    training(machine, tmp_path / "whole").run(DATA, max_epochs=2)
    engine = training(machine, tmp_path / "parts")
    engine.on(EACH(at=killed_at))(kill)
    with pytest.raises(KeyboardInterrupt):
        engine.run(DATA, max_epochs=2)
    machine.counters.update(dict.fromkeys(ZONES, 11))  # the machine starts again
    machine.take(7)
    training(machine, tmp_path / "parts").run(DATA, max_epochs=2)
    assert energies(tmp_path / "parts") == energies(tmp_path / "whole")


def test_a_finished_run_that_is_started_again_takes_nothing_more(machine, tmp_path):
    first = training(machine, tmp_path).run(DATA, max_epochs=2)
    again = training(machine, tmp_path).run(DATA, max_epochs=2)
    assert again.metrics["energy"] == first.metrics["energy"] == 63.0
    more = training(machine, tmp_path).run(DATA, max_epochs=3)
    assert more.metrics["energy"] == 3.0 * sum(range(10))


def test_without_energy_there_is_none_and_a_run_may_begin_to_measure_it(machine, tmp_path):
    state = training(machine, tmp_path, energy=False).run(DATA, max_epochs=1)
    assert _energy(state.metrics) == {}
    state = training(machine, tmp_path).run(DATA, max_epochs=2)
    assert state.metrics["energy"] == 3.0 * (3 + 4 + 5 + 6)


def test_a_counter_that_begins_again_twice_within_an_iteration_loses_nothing(machine):
    for zone in ZONES:  # so small that it is read every 5 ms
        (machine.folder / zone / "max_energy_range_uj").write_text("10000000")

    def step(state, batch):
        for now in (6, 2, 8, 4):  # megajoules: it passes zero before 2 and before 4
            for zone in ZONES:
                (replaced := machine.folder / zone / "new").write_text(f"{now}000000")
                replaced.rename(machine.folder / zone / "energy_uj")
            time.sleep(0.3)

    for zone in ZONES:
        (machine.folder / zone / "energy_uj").write_text("0")
    engine = Engine(step, SystemUse(when=EACH, energy=machine.folder))
    assert engine.run([0], max_epochs=1).metrics["energy"] == 3 * 24.0


def test_a_run_leaves_no_thread_behind(machine):
    from threading import enumerate as threads

    before = set(threads())

    def step(state, batch):
        if batch:
            raise ZeroDivisionError

    engine = Engine(step, SystemUse(when=EACH, energy=machine.folder))
    engine.run([0], max_epochs=1)
    with pytest.raises(ZeroDivisionError):
        engine.run([1], max_epochs=1)
    for thread in set(threads()) - before:
        thread.join(60)
    assert set(threads()) <= before


def test_counters_for_root_alone_are_left_out_with_one_warning_that_says_what_to_do():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        machine = Machine(Path(folder))
        for zone in ZONES:
            (machine.folder / zone / "energy_uj").chmod(0)
        engine = Engine(lambda state, batch: None)
        engine.add(SystemUse(when=EACH, energy=machine.folder))
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)  # nobody
        try:
            with pytest.warns(UserWarning, match=r"Permission denied.*sudo chmod a\+r") as told:
                metrics = engine.run(range(3), max_epochs=1).metrics
        finally:
            if is_root:
                os.seteuid(0)
    assert len(told) == 1
    assert _energy(metrics) == {}
    assert metrics["cpu/system"] >= 0


def test_a_counter_that_fails_in_mid_run_leaves_the_rest_of_the_run_alone(machine):
    def step(state, batch):
        machine.take(1_000_000)
        if batch == 1:
            (machine.folder / "intel-rapl:1" / "energy_uj").unlink()

    engine = Engine(step, SystemUse(when=EACH, energy=machine.folder))
    with pytest.warns(UserWarning, match="leaves out the energy of processors") as told:
        rows = rows_of(engine, [0, 1])
    assert (len(told), len(rows)) == (1, 2)
    assert rows[0]["energy"] == 3.0


def test_a_machine_without_counters_says_so(tmp_path):
    engine = Engine(lambda state, batch: None, SystemUse(when=EACH, energy=tmp_path))
    with pytest.warns(UserWarning, match=r"no counter in .*In a container: mount the folder"):
        assert _energy(engine.run([0, 1], max_epochs=1).metrics) == {}


def test_nonsense_is_refused(tmp_path):
    for nonsense in (None, 1, 0, "", tmp_path / "nothing"):
        with pytest.raises(ValueError, match=r"needs True or a folder there is"):
            SystemUse(energy=nonsense)
    with pytest.raises(TypeError):
        SystemUse(EACH, True)


def test_without_its_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ModuleNotFoundError, match=r'pynvml: pip install "camshaft\[measurements\]'):
        SystemUse(energy=True)
    assert SystemUse().energy is False


@pytest.fixture
def devices(monkeypatch):
    """What NVIDIA's library and torch say of two devices, in millijoules by their ids."""
    counters, now = {"GPU-aaaa": 5_000, "GPU-bbbb": 7_000}, types.SimpleNamespace(device=1)
    library = types.ModuleType("pynvml")
    library.NVMLError = type("NVMLError", (Exception,), {})
    library.nvmlInit = lambda: None
    library.nvmlDeviceGetHandleByUUID = lambda uuid: uuid

    def read(handle):
        if counters[handle] is None:
            raise library.NVMLError("Not Supported")
        return counters[handle]

    library.nvmlDeviceGetTotalEnergyConsumption = read
    monkeypatch.setitem(sys.modules, "pynvml", library)
    uuids = ["aaaa", "bbbb"]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: now.device)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda n: types.SimpleNamespace(uuid=uuids[n])
    )
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    counters["now"] = now
    return counters


def test_the_energy_of_the_device_of_this_rank_is_added_to_that_of_processors(machine, devices):
    def step(state, batch):
        machine.take(1_000_000)
        devices["GPU-aaaa"] += 100_000
        devices["GPU-bbbb"] += batch

    engine = Engine(step, SystemUse(when=EACH, energy=machine.folder))
    assert rows_of(engine, [500, 250]) == [
        {"energy": 3.5, "energy/cpu": 3.0, "energy/gpu": 0.5},
        {"energy": 6.75, "energy/cpu": 6.0, "energy/gpu": 0.75},
    ]


def test_a_device_that_the_script_chooses_later_is_counted_from_then_on(machine, devices):
    def step(state, batch):
        devices["now"].device = batch
        devices["GPU-aaaa"] += 1_000
        devices["GPU-bbbb"] += 10_000

    engine = Engine(step, SystemUse(when=EACH, energy=machine.folder))
    found = [row["energy/gpu"] for row in rows_of(engine, [1, 0, 0, 1])]
    assert found == [10.0, 10.0, 11.0, 41.0]


def test_a_device_without_a_counter_is_left_out_with_one_warning(machine, devices):
    devices["GPU-bbbb"] = None
    engine = Engine(lambda state, batch: machine.take(1_000_000))
    engine.add(SystemUse(when=EACH, energy=machine.folder))
    with pytest.warns(UserWarning, match=r"energy of the GPU: Not Supported\. NVIDIA's") as told:
        rows = rows_of(engine, [0, 0])
    assert len(told) == 1
    assert rows[1] == {"energy": 6.0, "energy/cpu": 6.0}


RANKS = """
import os, sys
from pathlib import Path

import torch
from camshaft import Engine, Events, ranks
from camshaft.handlers import Checkpoint, SystemUse

folder, directory, epochs, *without = sys.argv[1:]
with ranks.process_group():
    for name in without:
        del os.environ[name]
    zone = Path(folder) / "intel-rapl:0" / "energy_uj"

    def step(state, batch):
        if ranks.rank() == 0:
            zone.write_text(str(int(zone.read_text()) + 2_000_000))

    engine = Engine(step, objects={"model": torch.nn.Linear(1, 1)})
    engine.add(SystemUse(when=Events.COMPLETED, energy=folder), Checkpoint(directory, resume=True))
    found = engine.run([0], max_epochs=int(epochs)).metrics.get("energy")
    print("found", found, ranks.total(found or 0.0), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("without", [(), ("LOCAL_RANK",)], ids=str)
def test_the_first_rank_of_a_machine_counts_its_processors_also_if_ranks_come_and_go(
    processes, machine, tmp_path, without
):
    def found(count, epochs):
        arguments = (count, RANKS, machine.folder, tmp_path / "run", epochs, *without)
        return [each.stdout.split("found ")[1].strip() for each in processes.run_ranks(*arguments)]

    machine.counters.update(dict.fromkeys(ZONES, 0))
    machine.take(0)
    assert found(1, 1) == ["2.0 2.0"]
    assert found(2, 2) == ["4.0 4.0", "None 4.0"]
    assert found(1, 3) == ["6.0 6.0"]
