"""Seeds: set by those who ask for it, and by nobody else."""

import random
import subprocess
import sys

import numpy
import pytest
import torch

from camshaft import seed_everything


def draw():
    return random.random(), numpy.random.rand(), torch.rand(()).item()


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_what_is_drawn_is_what_each_library_draws_with_that_seed(seed):
    seed_everything(seed)
    found = draw()
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    assert draw() == found
    assert torch.initial_seed() == seed


def test_large_seeds_are_seeds_too():
    seed_everything(2**64 - 1)
    found = draw()
    seed_everything(2**64 - 1)
    assert draw() == found
    seed_everything(2**32 - 1)
    assert draw()[1] != found[1]


@pytest.mark.parametrize(
    ("seed", "error"), [(True, TypeError), (1.0, TypeError), (-1, ValueError), (2**64, ValueError)]
)
def test_what_is_no_seed_is_refused(seed, error):
    with pytest.raises(error, match="seed_everything"):
        seed_everything(seed)


def test_neither_importing_nor_building_nor_running_seeds_anything(tmp_path):
    script = """
import random, numpy, torch
random.seed(1), numpy.random.seed(2), torch.manual_seed(3)
states = random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
import camshaft, camshaft.handlers
from camshaft.handlers import *
from camshaft import *
model = torch.nn.Linear(1, 1, bias=False, device="meta").to_empty(device="cpu")
torch.nn.init.ones_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
data = [(torch.ones(1, 1), torch.zeros(1, 1))]
engine.add(Validate(data), Checkpoint("run"), EarlyStopping("val/loss"), ClipGradNorm(1.0))
engine.run(data, max_epochs=2)
assert torch.initial_seed() == 3
assert states == (
    random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
)
"""
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
