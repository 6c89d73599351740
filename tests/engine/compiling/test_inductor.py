"""Code that torch generates: its last bits depend on the sizes of batches that it was made for."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, LRSchedule
from camshaft.handlers.schedules import cosine

# What torch imports to compile an optimizer warns about itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")


@pytest.fixture(autouse=True)
def one_thread_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    with torch._inductor.config.patch(compile_threads=1):  # without a pool of processes
        yield


def train(directory, interrupted=False):
    torch._dynamo.reset()  # as in another process
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Dropout(), nn.Linear(128, 10))
    )
    data = TensorDataset(torch.randn(41, 64), torch.randint(10, (41,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, nn.functional.cross_entropy, compile=True)
    engine.add(LRSchedule(cosine(final=0.1)))
    engine.add(Checkpoint(directory, resume=True, when=Events.ITERATION_COMPLETED(at=1)))
    if interrupted:
        engine.on(Events.ITERATION_STARTED(at=2))(lambda state: 1 / 0)
    state = engine.run(DataLoader(data, 32, shuffle=True), max_epochs=2)
    return [*model.state_dict().values(), state.metrics["loss"]]


@pytest.mark.slow
def test_a_run_that_goes_on_with_a_short_batch_is_the_uninterrupted_one_to_the_last_bit(tmp_path):
    expected = train(tmp_path / "whole")  # 32 samples, then 9
    with pytest.raises(ZeroDivisionError):
        train(tmp_path / "run", interrupted=True)
    found = train(tmp_path / "run")  # 9 samples, then 32
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.soak
def test_a_run_that_is_started_again_loads_what_was_compiled_from_its_directory(tmp_path):
    def start(name, *arguments):
        script = Path(__file__).with_name("compiled_run.py")
        command = [sys.executable, script, tmp_path / name, *arguments]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == (-signal.SIGKILL if arguments else 0), made.stderr
        return json.loads(made.stdout) if made.stdout else None

    whole = start("whole")
    assert whole["misses"] > 0 == whole["hits"]
    start("run", "killed")
    again = start("run")
    assert again["weights"] == whole["weights"]
    assert (again["misses"], again["hits"]) == (0, whole["misses"])
    assert again["built"] <= 1 < whole["built"]  # the one compares torch's headers
