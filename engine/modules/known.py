"""The modules that an engine knows: its objects, and modules that these objects hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def modules_of(thing: object) -> list[Any]:
    """The module itself; for another object, the modules that are its attributes.

    So a script can save a model by an object of its own with another `state_dict`, and evaluations
    still put the model into evaluation mode.

    >>> from torch.nn import Linear
    >>> class Adapter:
    ...     def __init__(self, model):
    ...         self.model = model
    >>> modules_of(Adapter(Linear(2, 1)))
    [Linear(in_features=2, out_features=1, bias=True)]
    """
    if isinstance(thing, type):
        return []
    if is_module(thing):
        return [thing]
    return [each for each in getattr(thing, "__dict__", {}).values() if is_module(each)]


def all_modules(objects: Iterable[object]) -> list[Any]:
    """All modules that these objects are or hold, including their submodules."""
    return [module for each in objects for outer in modules_of(each) for module in outer.modules()]


def is_module(thing: object) -> bool:
    """True for a module of torch."""
    # By its methods: this file must not import torch.
    return callable(getattr(thing, "modules", None)) and hasattr(thing, "named_parameters")
