"""Seeds, for those who want them: Camshaft itself never seeds anything in this process."""

from __future__ import annotations

import random
from contextlib import suppress

import torch

from . import ranks
from .state import seed_of_rank


def seed_everything(seed: int, *, per_rank: bool = False) -> None:
    """Seed the generators of Python, NumPy and torch, of its devices too.

    Call it before the model is made. With one seed the same script draws the same numbers; whether
    it computes the same is up to its kernels: see `torch.use_deterministic_algorithms`.

    Args:
        seed: From 0 to 2**64 - 1. What is drawn is what `random.seed(seed)`,
            `numpy.random.seed(seed)` and `torch.manual_seed(seed)` lead to.
        per_rank: Give each rank but the first a seed of its own, made of `seed` and its number, so
            that dropout and augmentation differ. `DistributedSampler` has a seed of its own, and
            `DistributedDataParallel` starts from the first rank's weights, so neither minds; a
            sampler that draws the same order on all ranks has to have its own generator then.

    Raises:
        TypeError: `seed` is no whole number.
        ValueError: `seed` is out of range.

    >>> seed_everything(7)
    >>> first = torch.rand(3)
    >>> seed_everything(7)
    >>> torch.equal(torch.rand(3), first)
    True
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed_everything({seed!r}): needs a whole number")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed_everything({seed}): needs a number from 0 to 2**64 - 1")
    own = seed_of_rank(seed, ranks.data_rank()) if per_rank else seed
    random.seed(own)
    torch.manual_seed(own)
    with suppress(ImportError):
        import numpy

        numpy.random.seed(own if own < 2**32 else [own & 0xFFFFFFFF, own >> 32])
