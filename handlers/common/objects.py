"""The module that a handler works on, and names of objects."""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import count
from typing import Any

from torch.nn import Module


def module_of(objects: Mapping[str, Any], name: str, kind: str) -> Module:
    """The module that is called `name` among the engine's objects."""
    found = objects.get(name)
    if not isinstance(found, Module):
        modules = [other for other, each in objects.items() if isinstance(each, Module)]
        raise ValueError(
            f"{kind}(object={name!r}): needs the name of a module in engine.objects; its modules "
            f"are {', '.join(map(repr, modules)) or 'none'}. Choose one of these, or make the "
            f"engine with Engine(..., objects={{{name!r}: ...}})"
        )
    return found


def refuse_taken(objects: Mapping[str, Any], name: str, kind: str, other: str) -> None:
    """Refuse a name that one of the engine's objects has."""
    if name in objects:
        raise ValueError(
            f"the engine has an object {name!r} already; choose another name: "
            f"{kind}(..., name={free_name(objects, other)!r})"
        )


def free_name(taken: Container[str], wanted: str) -> str:
    """The name, or the first free one of those with a number behind it.

    >>> free_name(["critic", "critic_2"], "critic")
    'critic_3'
    """
    numbered = (wanted if number == 1 else f"{wanted}_{number}" for number in count(1))
    return next(name for name in numbered if name not in taken)
