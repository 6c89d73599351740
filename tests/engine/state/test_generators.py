"""Random number generators, captured and put back."""

import random
import subprocess
import sys

import numpy
import torch
from torch.utils.data import DataLoader

from camshaft.engine.state import (
    capture_generators,
    generators,
    generators_of,
    restore_generators,
    seed_all,
)


def draw(generator=None):
    own = torch.rand((), generator=generator).item() if generator else None
    return random.random(), numpy.random.rand(), torch.rand(()).item(), own


def test_what_was_captured_is_drawn_again():
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader([1, 2], generator=generator)
    rng = capture_generators(loader)
    expected = draw(generator)
    assert draw(generator) != expected
    restore_generators(rng, loader)
    assert draw(generator) == expected


def test_each_generator_of_a_loader_is_found_once():
    generator, other = torch.Generator(), torch.Generator()
    assert generators_of(DataLoader([1], shuffle=True, generator=generator)) == [generator]
    sampler = torch.utils.data.RandomSampler([1], generator=other)
    assert generators_of(DataLoader([1], sampler=sampler, generator=generator)) == [
        generator,
        other,
    ]
    assert generators_of([1, 2]) == []


def test_it_works_where_neither_numpy_nor_torch_is_loaded(tmp_path):
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
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_seed_is_for_all_of_them():
    seed_all(2**63 - 1)
    first = draw()
    assert draw() != first
    seed_all(2**63 - 1)
    assert draw() == first
    seed_all(5)
    assert all(a != b for a, b in zip(draw()[:3], first[:3], strict=True))
