"""Seeding on request: Camshaft itself does not seed this process's generators."""

from __future__ import annotations

import random
from contextlib import suppress

import torch

from . import ranks
from .state import seed_of_rank


def seed_everything(seed: int, *, per_rank: bool = False) -> None:
    """Seed the generators of Python, NumPy and torch, of its devices too.

    Call it before the model is made. With the same seed, a script draws the same numbers; whether
    its results are the same depends on its kernels: see `torch.use_deterministic_algorithms`.

    Args:
        seed: From 0 to 2**64 - 1. The random numbers are those after `random.seed(seed)`,
            `numpy.random.seed(seed)` and `torch.manual_seed(seed)`. On a CPU, torch draws the same
            numbers for seeds that agree in their lower 32 bits.
        per_rank: Give each rank but the first a seed made of `seed` and its number, so that
            dropout and augmentation differ. This does not affect `DistributedSampler`, which has
            its own seed, or `DistributedDataParallel`, which starts from the first rank's weights.
            A sampler that draws the same order on all ranks then needs its own generator.

    Raises:
        TypeError: `seed` is no whole number.
        ValueError: `seed` is out of range.

    >>> seed_everything(7)
    >>> first = torch.rand(3)
    >>> seed_everything(7)
    >>> torch.equal(torch.rand(3), first)
    True
    """
    if type(seed) is not int:
        raise TypeError(f"seed_everything({seed!r}): needs a whole number")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed_everything({seed}): needs a number from 0 to 2**64 - 1")
    own = seed_of_rank(seed, ranks.data_rank()) if per_rank else seed
    random.seed(own)
    torch.manual_seed(own)
    with suppress(ImportError):
        import numpy

        numpy.random.seed(own if own < 2**32 else [own & 0xFFFFFFFF, own >> 32])
