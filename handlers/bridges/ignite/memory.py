"""What ignite's handlers of an engine remember of a run, saved with Camshaft's checkpoints."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import ignite.engine
import torch
from ignite.metrics import Metric, MetricsLambda

from ....engine import Engine as NativeEngine
from ....engine.state import has_state
from .description import unwrapped

logger: logging.Logger = logging.getLogger("camshaft")

ATTRIBUTES = {"EMAHandler": ("ema_model",), "EpochOutputStore": ("data",)}
"""The attributes to save of handlers that change and have no `state_dict`."""
IS_REDUCED = "_is_reduced"
"""What a metric notes once it has summed its accumulators over the ranks."""


class HandlerStates:
    """The states of an ignite engine's handlers, and the user's own entries of its state.

    It is a handler of Camshaft, and what it remembers itself.
    """

    def __init__(self, engine: Any) -> None:
        """Remember for this engine, which has `objects` that Camshaft saves by themselves."""
        self._reference: weakref.ref[Any] = weakref.ref(engine)
        self._loaded: dict[str, Any] = {}
        """The states of a checkpoint, until handlers of STARTED have attached and begun."""

    def attach(self, engine: NativeEngine[Any, Any]) -> None:
        """Be known to the engine, so that checkpoints hold the states; listen to no event."""

    @property
    def _engine(self) -> Any:
        engine = self._reference()
        assert engine is not None
        return engine

    def state_dict(self) -> dict[str, Any]:
        """The states by name, the entries of `state_dict_user_keys`, and a `param_history`."""
        engine = self._engine
        keys = [*engine.state_dict_user_keys, "param_history"]
        user = {key: getattr(engine.state, key) for key in keys if hasattr(engine.state, key)}
        found = {name: dump(name, each) for name, each in stateful(engine)}
        return {"objects": self._loaded | found, "user": user}

    def saved_objects(self) -> list[Any]:
        """The handlers whose states these are."""
        return [each for _, each in stateful(self._engine)]

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Put back the states of handlers that are attached; `begin` puts back the rest."""
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


def stateful(engine: Any) -> Iterator[tuple[str, Any]]:
    """The handlers of an engine that remember something, each once, by their classes and order.

    A method stands for its object. Left out are engines, the engine's objects, which are saved
    already, and sums and products of metrics, whose parts are found by themselves.
    """
    seen = set(map(id, engine.objects.values()))
    numbers: dict[str, int] = {}
    for handlers in list(engine._event_handlers.values()):
        for function, _, _ in list(handlers):
            plain = unwrapped(function)
            each = getattr(plain, "__self__", plain)
            if id(each) in seen or not _remembers(each):
                continue
            seen.add(id(each))
            kind = type(each).__name__
            numbers[kind] = number = numbers.get(kind, 0) + 1
            yield (kind if number == 1 else f"{kind}.{number}"), each


def _remembers(value: Any) -> bool:
    if isinstance(value, ignite.engine.Engine | MetricsLambda | torch.nn.Module | type):
        return False
    kind = type(value)
    return kind.__name__ in ATTRIBUTES or (
        hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")
    )


def _is_metric(value: Any) -> bool:  # type checkers would refuse a Metric's private methods
    return isinstance(value, Metric)


def dump(name: str, value: Any) -> Any:
    """The state of a handler, on this rank."""
    if names := ATTRIBUTES.get(type(value).__name__):
        own = {each: getattr(value, each) for each in names}
        return {key: each.state_dict() if has_state(each) else each for key, each in own.items()}
    try:
        if _is_metric(value):  # its state_dict() would gather those of all ranks
            reduced = getattr(value, IS_REDUCED, False) is True
            return {"metric": dict(value._state_dict_per_rank()), "is_reduced": reduced}
        return {key: each for key, each in value.state_dict().items() if not callable(each)}
    except (TypeError, ValueError) as error:
        raise TypeError(f"ignite's {name} has no state that can be saved: {error}") from error


def put_back(value: Any, saved: Mapping[str, Any]) -> None:
    """Put back the state of a handler that `dump` gave."""
    if names := ATTRIBUTES.get(type(value).__name__):
        for name in names:
            if has_state(own := getattr(value, name)):
                own.load_state_dict(saved[name])
            else:
                setattr(value, name, saved[name])
    elif _is_metric(value):
        value._load_state_dict_per_rank(dict(saved["metric"]))
        setattr(value, IS_REDUCED, saved["is_reduced"])
    else:
        value.load_state_dict({**value.state_dict(), **saved})  # functions are those of the script
