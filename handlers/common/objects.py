"""The engine's objects, for handlers that are told the name of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.nn import Module


def module_of(objects: Mapping[str, Any], name: str, kind: str) -> Module:
    """The module that is called `name` among the engine's objects.

    Raises:
        ValueError: The engine has no module of that name.
    """
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
    """Refuse a name that one of the engine's objects has.

    Raises:
        ValueError: The name is taken; the message proposes `other`.
    """
    if name in objects:
        raise ValueError(
            f"the engine has an object {name!r} already; choose another name: "
            f"{kind}(..., name={other!r})"
        )
