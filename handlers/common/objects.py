"""The module that a handler works on, and names of objects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from itertools import count
from typing import Any, TypeVar

from torch.nn import Module

Named = TypeVar("Named")


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


def refuse_overwriting(
    own: Named, others: Iterable[Named], names: Callable[[Named], Collection[str]]
) -> None:
    """Refuse a handler that writes under a name under which another one of its class writes.

    Args:
        own: The handler; it may be among the others.
        others: Those of its class whose results may differ.
        names: Gives the names under which one of them writes; "" where it is not known.
    """
    for other in others:
        both = [name for name in names(own) if name and name in names(other)]
        if other is not own and both:
            raise ValueError(
                f"two {type(own).__name__} write {both[0]!r}: the second would write over the "
                "result of the first; give one of them another name"
            )


def free_name(taken: Container[str], wanted: str) -> str:
    """The name, or the first free one of those with a number behind it.

    >>> free_name(["critic", "critic_2"], "critic")
    'critic_3'
    """
    numbered = (wanted if number == 1 else f"{wanted}_{number}" for number in count(1))
    return next(name for name in numbered if name not in taken)
