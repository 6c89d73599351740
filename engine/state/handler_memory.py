"""What an object remembers, as plain values: how handlers' memories are saved and put back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any


def snapshot(memory: Any) -> Any:
    """The content of a memory: of its `state_dict`, of its dataclass fields, or of the dict itself.

    Raises:
        TypeError: The memory is none of the three, or holds the state of a run.
    """
    _refuse_states(memory)
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
    """Put what `snapshot` took back into a memory, in place.

    Raises:
        ValueError: The memory has other fields than the one that was saved.
    """
    if hasattr(memory, "load_state_dict"):
        memory.load_state_dict(saved)
        return
    if not isinstance(saved, dict):
        raise ValueError(f"it was saved as a {type(saved).__name__}, not by fields")
    if isinstance(memory, dict):
        memory.update({name: _put(memory.get(name), value) for name, value in saved.items()})
        return
    own = {item.name for item in fields(memory)} if is_dataclass(memory) else set[str]()
    if own != saved.keys():
        raise ValueError(
            f"fields only in the checkpoint: {_listed(saved.keys() - own)}; "
            f"fields only in {type(memory).__name__}: {_listed(own - saved.keys())}"
        )
    for name, value in saved.items():
        setattr(memory, name, _put(getattr(memory, name), value))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"


def _refuse_states(value: Any) -> None:
    from .state import State  # which needs this module

    if isinstance(value, State):
        raise TypeError(
            "it holds the State of a run, which holds all memories; handlers are handed the state "
            "with each call, so keep only what is needed of it"
        )


def _inner(value: Any) -> Any:
    _refuse_states(value)
    return value.state_dict() if hasattr(value, "state_dict") else value


def _put(current: Any, saved: Any) -> Any:
    if not hasattr(current, "load_state_dict"):
        return saved
    current.load_state_dict(saved)
    return current
