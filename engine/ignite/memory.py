"""What ignite's handlers of an engine remember of a run, saved with Camshaft's checkpoints."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import ignite.engine
import torch

from .. import engine as native
from ..state import State
from .filters import unwrapped

logger = logging.getLogger("camshaft")


class IgniteHandlers:
    """A handler of Camshaft that stands for all of ignite's: their states are its memory."""

    def __init__(self, engine: ignite.engine.Engine) -> None:
        self._engine = weakref.ref(engine)

    def attach(self, engine: native.Engine[Any, Any]) -> None:
        """Take part in checkpoints, and in nothing else."""

    def recall(self, state: State[Any, Any]) -> Memory:
        """The memory of this run; a resumed run puts the saved states back."""
        return state.recall(self, lambda: Memory(self._engine))


class Memory:
    """The states of attached objects, and the user's own entries of ignite's state."""

    def __init__(self, engine: weakref.ref[ignite.engine.Engine]) -> None:
        self._engine = engine
        self._loaded: dict[str, Any] = {}
        """The states of a checkpoint, until handlers of STARTED have attached and begun."""

    def state_dict(self) -> dict[str, Any]:
        """The states by name, and the entries that `state_dict_user_keys` names."""
        engine = self._engine()
        assert engine is not None
        found = {name: each.state_dict() for name, each in stateful(engine)}
        user = {name: getattr(engine.state, name) for name in engine.state_dict_user_keys}
        return {"objects": self._loaded | found, "user": user}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Put back what is attached already; the rest waits for `put_back`."""
        engine = self._engine()
        assert engine is not None
        for name, value in saved["user"].items():
            setattr(engine.state, name, value)
        self._loaded = dict(saved["objects"])
        self.put_back()

    def put_back(self) -> None:
        """Put states back into what is attached."""
        engine = self._engine()
        assert engine is not None
        for name, each in stateful(engine):
            if name in self._loaded:
                each.load_state_dict(self._loaded[name])

    def begin(self) -> None:
        """Put states back once more, since metrics begin anew in STARTED."""
        self.put_back()
        engine = self._engine()
        assert engine is not None
        if missing := self._loaded.keys() - {name for name, _ in stateful(engine)}:
            logger.warning(
                "the checkpoint has states of %s, which this script does not attach",
                ", ".join(sorted(missing)),
            )
        self._loaded.clear()


def stateful(engine: Any) -> Iterator[tuple[str, Any]]:
    """The objects with a state whose methods, or which themselves, are handlers; with names.

    Engines are left out, and so is what the engine of Camshaft has among its objects.
    """
    seen = set(map(id, engine.objects.values()))
    numbers: dict[str, int] = {}
    for handlers in list(engine._event_handlers.values()):
        for function, _, _ in list(handlers):
            plain = unwrapped(function)
            each = getattr(plain, "__self__", plain)
            if id(each) in seen or not _has_state(each):
                continue
            seen.add(id(each))
            kind = type(each).__name__
            numbers[kind] = number = numbers.get(kind, 0) + 1
            yield (kind if number == 1 else f"{kind}.{number}"), each


def _has_state(value: Any) -> bool:
    kind = type(value)
    if isinstance(value, ignite.engine.Engine | torch.nn.Module | type):
        return False
    return hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")
