"""What handlers of ignite remember of a run: saved with it, and put back."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import ignite.engine
import torch
from ignite.metrics import Metric, MetricsLambda

logger = logging.getLogger("camshaft")

PARTS = {"EMAHandler": ("ema_model",), "EpochOutputStore": ("data",)}
"""The attributes to save of handlers that change and have no `state_dict`."""
IS_REDUCED = "_is_reduced"
"""What a metric notes once it has summed its accumulators over the ranks."""


class Memory:
    """The states of the handlers of an `IgniteEngine`, by their classes and order."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def state_dict(self) -> dict[str, Any]:
        """The states by name, and the entries that `state_dict_user_keys` names.

        Raises:
            TypeError: The state of one of them cannot be saved.
        """
        engine = self._engine
        keys = [*engine.state_dict_user_keys, "param_history"]
        own = {key: getattr(engine.state, key) for key in keys if hasattr(engine.state, key)}
        return {"handlers": {name: _dump(name, each) for name, each in found(engine)}, "own": own}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Put the states back into the handlers that this script attaches."""
        for name, value in saved["own"].items():
            setattr(self._engine.state, name, value)
        states = dict(saved["handlers"])
        for name, each in found(self._engine):
            if name in states:
                _put_back(each, states.pop(name))
        if states:
            logger.warning(
                "the checkpoint has states of handlers of ignite that this script does not attach: "
                "%s",
                ", ".join(states),
            )


def found(engine: Any) -> Iterator[tuple[str, Any]]:
    """The handlers that remember something, each once, with their names.

    Left out are engines, what is among the engine's objects and saved there, and sums and
    products of metrics, whose parts are found themselves.
    """
    native = engine._native()
    seen = set() if native is None else set(map(id, native.objects.values()))
    numbers: dict[str, int] = {}
    for handlers in list(engine._event_handlers.values()):
        for function, _, _ in list(handlers):
            parent = getattr(function, "__dict__", {}).get("_parent")
            plain = function if parent is None else parent()
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
    return kind.__name__ in PARTS or (
        hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")
    )


def _is_metric(value: Any) -> bool:
    return isinstance(value, Metric)


def _dump(name: str, value: Any) -> Any:
    if (parts := PARTS.get(type(value).__name__)) is not None:
        held = {part: getattr(value, part) for part in parts}
        return {p: e.state_dict() if hasattr(e, "state_dict") else e for p, e in held.items()}
    try:
        if _is_metric(value):  # its state_dict() would gather those of all ranks
            reduced = getattr(value, IS_REDUCED, False) is True
            return {"metric": dict(value._state_dict_per_rank()), "is_reduced": reduced}
        return {key: each for key, each in value.state_dict().items() if not callable(each)}
    except (TypeError, ValueError) as error:
        raise TypeError(f"ignite's {name} has no state that can be saved: {error}") from error


def _put_back(value: Any, saved: Any) -> None:
    if (parts := PARTS.get(type(value).__name__)) is not None:
        for part in parts:
            held = getattr(value, part)
            if hasattr(held, "load_state_dict"):
                held.load_state_dict(saved[part])
            else:
                setattr(value, part, saved[part])
    elif _is_metric(value):
        value._load_state_dict_per_rank(saved["metric"])
        setattr(value, IS_REDUCED, saved["is_reduced"])
    else:
        value.load_state_dict({**value.state_dict(), **saved})  # functions are those of the script
