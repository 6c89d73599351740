"""What an object remembers, as plain values: how handlers' memories are saved and put back."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def snapshot(memory: Any) -> Any:
    """The content of a memory: of its `state_dict`, of its dataclass fields, or of the dict itself.

    Raises:
        TypeError: The memory is none of the three.
    """
    if hasattr(memory, "state_dict"):
        return memory.state_dict()
    if isinstance(memory, dict):
        return {name: _inner(value) for name, value in memory.items()}
    if is_dataclass(memory) and not isinstance(memory, type):
        return {item.name: _inner(getattr(memory, item.name)) for item in fields(memory)}
    raise TypeError(
        f"{type(memory).__name__} cannot be saved: a memory needs to be a dataclass, a dict, or "
        "have state_dict() and load_state_dict(); for what need not be saved, pass saved=False"
    )


def restore(memory: Any, saved: Any) -> None:
    """Put what `snapshot` took back into a memory, in place."""
    if hasattr(memory, "load_state_dict"):
        memory.load_state_dict(saved)
    elif isinstance(memory, dict):
        memory.update({name: _put(memory.get(name), value) for name, value in saved.items()})
    else:
        for name, value in saved.items():
            setattr(memory, name, _put(getattr(memory, name), value))


def _inner(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") else value


def _put(current: Any, saved: Any) -> Any:
    if not hasattr(current, "load_state_dict"):
        return saved
    current.load_state_dict(saved)
    return current
