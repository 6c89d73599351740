"""What torch's optimizers call after a step: one hook of the process, for all runs that look."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Lock, get_ident
from typing import Any

_lock = Lock()
_looks: list[Callable[[Any], None]] = []
_running: list[int] = []
"""The threads of the runs that train, once for each run."""
_hooks: list[Any] = []
"""Torch's handle of the hook, while it is there."""


def begin() -> None:
    """A run begins to train in this thread."""
    with _lock:
        _running.append(get_ident())


def end() -> None:
    """It trains no longer."""
    with _lock:
        _running.remove(get_ident())
        _tidy()


def add(look: Callable[[Any], None]) -> None:
    """Call `look` with any optimizer of the process after each of its steps, in its thread."""
    optimizers: Any = sys.modules.get("torch.optim.optimizer")
    if optimizers is None:  # nothing steps where torch is absent
        return
    with _lock:
        _looks.append(look)
        if not _hooks:
            _hooks.append(optimizers.register_optimizer_step_post_hook(_hook))


def remove(look: Callable[[Any], None]) -> None:
    """Call it no longer; not to be called while an optimizer of this thread steps."""
    with _lock:
        if look in _looks:
            _looks.remove(look)
        _tidy()


def _tidy() -> None:
    """Remove an idle hook, unless another thread trains: its optimizer may go through the hooks."""
    if _hooks and not _looks and {*_running} <= {get_ident()}:
        _hooks.pop().remove()


def _hook(optimizer: Any, *_: object) -> None:
    for look in _looks.copy():
        look(optimizer)
