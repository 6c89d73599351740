"""The states of ignite's handlers: what of them is saved, and how it is put back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ignite.engine
import torch
from ignite.metrics import Metric, MetricsLambda

from .filters import unwrapped

PARTS = {"EMAHandler": ("ema_model",), "EpochOutputStore": ("data",)}
"""The attributes to save of handlers that change and have no `state_dict`."""
IS_REDUCED = "_is_reduced"
"""What a metric notes once it has summed its accumulators over the ranks."""


def stateful(engine: Any) -> Iterator[tuple[str, Any]]:
    """The handlers of an engine that remember something, each once, by their classes and order.

    Of a method its object counts. Left out are engines, what is among the engine's objects and
    saved there, and sums and products of metrics, whose parts are found themselves.
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
    return kind.__name__ in PARTS or (
        hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")
    )


def _is_metric(value: Any) -> bool:
    return isinstance(value, Metric)


def dump(name: str, value: Any) -> Any:
    """The state of one of them, on this rank.

    Raises:
        TypeError: It cannot be saved.
    """
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


def put_back(value: Any, saved: Mapping[str, Any]) -> None:
    """Put the state back that `dump` gave."""
    if (parts := PARTS.get(type(value).__name__)) is not None:
        for part in parts:
            held = getattr(value, part)
            if hasattr(held, "load_state_dict"):
                held.load_state_dict(saved[part])
            else:
                setattr(value, part, saved[part])
    elif _is_metric(value):
        value._load_state_dict_per_rank(dict(saved["metric"]))
        setattr(value, IS_REDUCED, saved["is_reduced"])
    else:
        value.load_state_dict({**value.state_dict(), **saved})  # functions are those of the script
