"""Random number generators, their seeds, and the position in the data that holds them."""

import random

import numpy
import pytest
import torch

from camshaft import seed_everything
from camshaft.engine.state import Position, capture_generators, generators, seed_all


def draw(generator=None):
    own = torch.rand((), generator=generator).item() if generator else None
    return random.random(), numpy.random.rand(), torch.rand(()).item(), own


def test_it_works_where_neither_numpy_nor_torch_is_loaded(processes):
    source = generators.__file__
    script = (
        "import sys, random, runpy\n"
        f"rng = runpy.run_path({source!r})\n"
        "saved = rng['capture_generators']()\n"
        "first = random.random()\n"
        "rng['restore_generators'](saved)\n"
        "assert random.random() == first\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    processes.run(script, fresh=True)


def test_a_seed_is_for_all_of_them():
    seed_all(2**63 - 1)
    first = draw()
    assert draw() != first
    seed_all(2**63 - 1)
    assert draw() == first
    seed_all(5)
    assert all(a != b for a, b in zip(draw()[:3], first[:3], strict=True))


def test_an_iterator_of_an_earlier_release_is_read_on_from_where_its_first_pass_began():
    saved = Position(3, 8, capture_generators(), 5).state_dict() | {"read_from": 2}
    again = Position.of(saved)
    assert (again.began, again.is_once, again.state_dict()["read_from"]) == (2, True, 2)
    assert not Position.of(saved | {"read_from": None}).is_once


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


@pytest.mark.slow
def test_neither_importing_nor_building_nor_running_seeds_anything(processes, tmp_path):
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
    processes.run(script, cwd=tmp_path, fresh=True)
