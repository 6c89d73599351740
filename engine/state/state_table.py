"""A state as notebooks show it: a table of its clocks and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .state import State


def state_table(state: State[Any, Any]) -> str:
    """A table in HTML; of a tensor with several elements it says the shape."""
    rows = "".join(
        f"<tr><th style='text-align: left'>{escape(name)}</th><td>{escape(text)}</td></tr>"
        for name, text in _rows(state)
    )
    return f"<table>{rows}</table>"


def _rows(state: State[Any, Any]) -> Iterator[tuple[str, str]]:
    if not state.training:
        yield "evaluation", state.name
    elif state.stop_reason is not None:
        yield "interrupted" if state.is_interrupted else "ended", state.stop_reason
    for name, most in (("epoch", "max_epochs"), ("iteration", "max_iterations")):
        yield name, _of(getattr(state, name), getattr(state, most))
    if state.step or state.max_steps is not None:
        yield "step", _of(state.step, state.max_steps)
    for name, value in state.metrics.items():
        yield f"metrics[{name!r}]", _text(value)


def _of(count: int, most: int | None) -> str:
    return str(count) if most is None else f"{count} of {most}"


def _text(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None and tuple(shape):
        return f"{type(value).__name__} of shape {tuple(shape)}"
    try:
        return f"{value:.4g}"  # a number, or a tensor without dimensions
    except (TypeError, ValueError):
        return value[:200] if isinstance(value, str) else type(value).__name__
