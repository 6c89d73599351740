"""What ignite's handlers of an engine remember of a run, saved with Camshaft's checkpoints."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from typing import Any

import ignite.engine

from .. import engine as native
from ..state import State
from .states import dump, put_back, stateful

logger = logging.getLogger("camshaft")


class IgniteHandlers:
    """A handler of Camshaft that stands for all of ignite's: their states are its memory."""

    def __init__(self, engine: ignite.engine.Engine) -> None:
        self._engine = weakref.ref(engine)

    def attach(self, engine: native.Engine[Any, Any]) -> None:
        """Take part in checkpoints, and in nothing else."""

    def recall(self, state: State[Any, Any]) -> IgniteMemory:
        """The memory of this run; a resumed run puts the saved states back."""
        return state.recall(self, lambda: IgniteMemory(self._engine))


class IgniteMemory:
    """The states of an ignite engine's handlers, and the user's own entries of its state."""

    def __init__(self, engine: weakref.ref[Any]) -> None:
        """Remember for this engine, which has `objects` that Camshaft saves by themselves."""
        self._reference = engine
        self._loaded: dict[str, Any] = {}
        """The states of a checkpoint, until handlers of STARTED have attached and begun."""

    @property
    def _engine(self) -> Any:
        engine = self._reference()
        assert engine is not None
        return engine

    def state_dict(self) -> dict[str, Any]:
        """The states by name, the entries of `state_dict_user_keys`, and a `param_history`.

        Raises:
            TypeError: The state of a handler cannot be saved.
        """
        engine = self._engine
        keys = [*engine.state_dict_user_keys, "param_history"]
        user = {key: getattr(engine.state, key) for key in keys if hasattr(engine.state, key)}
        found = {name: dump(name, each) for name, each in stateful(engine)}
        return {"objects": self._loaded | found, "user": user}

    def saved_objects(self) -> list[Any]:
        """The handlers whose states these are."""
        return [each for _, each in stateful(self._engine)]

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Put back what is attached already; the rest waits for `begin`."""
        for name, value in saved["user"].items():
            setattr(self._engine.state, name, value)
        self._loaded = dict(saved["objects"])
        self._put_back()

    def begin(self) -> None:
        """Put states back after the handlers of STARTED: some attach there, metrics begin anew."""
        attached = self._put_back()
        if missing := self._loaded.keys() - attached:
            logger.warning(
                "the checkpoint has states of handlers of ignite that this script does not attach: "
                "%s",
                ", ".join(sorted(missing)),
            )
        self._loaded.clear()

    def _put_back(self) -> set[str]:
        found = dict(stateful(self._engine))
        for name in found.keys() & self._loaded.keys():
            put_back(found[name], self._loaded[name])
        return set(found)
