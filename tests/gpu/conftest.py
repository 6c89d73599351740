"""What a GPU does, and by the same tests the CPU.

On the CPU they show more of what other tests show, so they are slow there; on a GPU nothing else
shows it. Kernels that do not give the same bits again are errors.
"""

import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA is first used


@pytest.fixture(
    params=[
        pytest.param("cpu", marks=pytest.mark.slow),
        pytest.param("cuda", marks=pytest.mark.gpu),
    ]
)
def device(request):
    """Where to compute."""
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _same_bits_again():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def run_script(device, processes):
    """Runs a script of this folder in a process of its own, and gives what it writes.

    With CUDA, that is a new interpreter: a process forked from one that has looked for devices
    cannot use them.
    """

    def run(name, *arguments, env=()):
        script = Path(__file__).with_name(name)
        fresh = device.type != "cpu"
        return processes.run(script, device, *arguments, env=env, fresh=fresh).stdout

    return run
