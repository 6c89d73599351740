"""Evaluation that leaves no trace."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from .rng import capture, restore


@contextmanager
def untouched(objects: Mapping[str, Any], data: object) -> Generator[None]:
    """Put modules into evaluation mode and record no gradients, then leave everything as it was.

    That is each module's own `training` flag, the gradient mode, and every random number
    generator, those inside `data` included.
    """
    torch = sys.modules.get("torch")
    modules = [m for each in objects.values() if hasattr(each, "modules") for m in each.modules()]
    flags = [module.training for module in modules]
    rng = capture(data)
    opened = _pass_under_way(data)
    try:
        if opened is not None:
            data._iterator = None  # type: ignore[attr-defined]  # persistent workers serve one pass
        for module in modules:
            module.training = False
        with torch.no_grad() if torch else nullcontext():
            yield
    except BaseException:
        with suppress(Exception):  # a device that has failed must not hide how it did
            restore(rng, data)
        raise
    else:
        restore(rng, data)
    finally:
        for module, training in zip(modules, flags, strict=True):
            module.training = training
        if opened is not None:
            data._iterator = opened  # type: ignore[attr-defined]


def _pass_under_way(data: object) -> Any:
    """The iterator of a loader with persistent workers, if somebody is in the middle of it."""
    iterator = getattr(data, "_iterator", None)
    yielded = getattr(iterator, "_num_yielded", 0)
    try:
        over = yielded >= len(data)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):  # of unknown length, so nobody can tell
        over = False
    return iterator if yielded and not over else None
