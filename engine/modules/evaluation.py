"""Evaluation that leaves no trace."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from .. import ranks
from ..data import is_read
from ..state import capture_generators, restore_generators, seed_all


@contextmanager
def untouched(objects: Mapping[str, Any], data: object, seed: int | None = None) -> Generator[None]:
    """Put modules into evaluation mode and record no gradients, then leave everything as it was.

    That is each module's own `training` flag, the gradient mode, and every random number
    generator, those inside `data` included.

    Args:
        objects: The modules are among these.
        data: What is read meanwhile.
        seed: Of the generators meanwhile, but for those inside `data`; each rank adds its number.
    """
    torch = sys.modules.get("torch")
    modules = [m for each in objects.values() if hasattr(each, "modules") for m in each.modules()]
    flags = [module.training for module in modules]
    rng = capture_generators(data)
    # A loader's own iterator, with its persistent workers and its place, serves one pass.
    opened = getattr(data, "_iterator", None)
    is_shared = hasattr(data, "_iterator") and is_read(data)
    try:
        if is_shared:
            data._iterator = None  # type: ignore[attr-defined]
        for module in modules:
            module.training = False
        if seed is not None:
            seed_all(seed + ranks.rank())
        with torch.no_grad() if torch else nullcontext():
            yield
    except BaseException:
        with suppress(Exception):  # a device that has failed must not hide how it did
            restore_generators(rng, data)
        raise
    else:
        restore_generators(rng, data)
    finally:
        for module, training in zip(modules, flags, strict=True):
            module.training = training
        if is_shared:
            data._iterator = opened  # type: ignore[attr-defined]
