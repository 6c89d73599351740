"""What a run uses of its machine."""

import sys
import time

import psutil
import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers import SystemUse

NAMES = {"cpu/process", "cpu/system", "memory/process", "memory/available"}


def test_processor_and_memory_are_metrics():
    held = []

    def hold(state, batch):
        held.append(torch.ones(batch << 25))
        until = time.process_time() + 0.05  # the kernel counts in hundredths of a second
        while time.process_time() < until:
            sum(range(10_000))

    engine = Engine(hold, SystemUse(when=Events.ITERATION_COMPLETED))
    rows = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: rows.append(dict(state.metrics)))
    engine.run([0, 1], max_epochs=1)
    assert all(row.keys() >= NAMES for row in rows)
    assert rows[1]["memory/process"] - rows[0]["memory/process"] == pytest.approx(1 / 8, abs=1 / 16)
    assert rows[0]["cpu/process"] > 0
    total = psutil.virtual_memory().total / 2**30
    assert 0 < rows[1]["memory/available"] < total


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_peak_of_the_device_is_that_since_the_last_measurement():
    engine = Engine(lambda state, batch: torch.ones(batch << 20, device="cuda") is None)
    engine.add(SystemUse(when=Events.ITERATION_COMPLETED))
    peaks = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: peaks.append(state.metrics["gpu/peak"]))
    engine.run([1, 256, 1], max_epochs=1)
    assert peaks[1] > 1.0
    assert peaks[2] < 0.1


def test_without_psutil_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "camshaft\[measurements\]"'):
        SystemUse()
