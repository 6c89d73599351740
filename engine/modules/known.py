"""The modules and random generators that an engine knows: its objects, and what these hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..state import once_a_type, own_generators

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""Where a module of torch has its hooks."""
OF_STEPS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
"""Where an optimizer of torch has its hooks."""
OF_WEIGHTS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""Where a parameter has its hooks, or None."""


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
    if is_kind_of_module(type(thing)):
        return [thing]
    own = getattr(thing, "__dict__", {}).values()
    return [each for each in own if is_kind_of_module(type(each))]


def all_modules(objects: Iterable[object]) -> list[Any]:
    """All modules that these objects are or hold, including their submodules."""
    return [module for each in objects for outer in modules_of(each) for module in outer.modules()]


def generators_in(objects: Mapping[str, Any]) -> dict[str, Any]:
    """By name: the random generators that objects and their modules have as attributes.

    >>> from random import Random
    >>> from types import SimpleNamespace
    >>> list(generators_in({"agent": SimpleNamespace(explore=Random(2))}))
    ['agent.explore']
    """
    found: dict[str, Any] = {}
    for name, thing in objects.items():
        places = {name: thing}
        for outer in modules_of(thing):
            paths = {path: each for path, each in outer.named_modules() if own_generators(each)}
            if paths:
                from .wrappers import plain_names  # which needs torch

                plain = plain_names(outer, paths)
                places |= {f"{name}.{plain[path]}".strip("."): paths[path] for path in paths}
        for place, each in places.items():
            found |= {f"{place}.{key}": own for key, own in own_generators(each).items()}
    return found


def hooks_of(objects: Mapping[str, Any]) -> list[Any]:
    """The functions that a script has registered as hooks of modules, parameters and optimizers."""
    found, owners = list[Any](), all_modules(objects.values())
    for each in (*owners, *(e for e in objects.values() if hasattr(type(e), "add_param_group"))):
        for name in (*HOOKS, *OF_STEPS):
            found += vars(each).get(name, {}).values()
    for each in (p for owner in owners for p in owner.parameters(False)):
        for name in OF_WEIGHTS:
            found += (getattr(each, name) or {}).values()
    return found


def is_module(thing: object) -> bool:
    """True for a module of torch."""
    return is_kind_of_module(type(thing))


@once_a_type
def is_kind_of_module(kind: type) -> bool:
    """True for a class of modules; a call of this costs no call of Python for a known class."""
    # By its methods: this file must not import torch.
    return callable(getattr(kind, "modules", None)) and hasattr(kind, "named_parameters")
