"""Parameters that a run leaves as they are, optimizers of other modules, teachers that drift."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from .. import modules, ranks
from .sharded import check_sharded
from .warn import warn

SHOWN = 3


def check_training(objects: Mapping[str, Any], handlers: Mapping[str, Any]) -> None:
    """Warn of what the modules and optimizers of an engine show before a run trains them.

    A sharded model that would train wrongly is refused.

    Args:
        objects: The engine's objects.
        handlers: Its handlers, some of which have an optimizer.
    """
    if "torch" not in sys.modules:
        return
    known = {name: modules.modules_of(each) for name, each in objects.items() if not _is_copy(each)}
    optimizers = _optimizers(objects, handlers)
    if ranks.is_distributed():
        modules.reshard(modules.fully_sharded(objects.values()))  # after a forward pass alone
        updates = [each for each in handlers.values() if hasattr(each, "accumulate")]
        check_sharded(objects, [*updates, *optimizers.values()])
    if optimizers:
        held = {id(each) for optimizer in optimizers.values() for each in _updated(optimizer)}
        for name, found in known.items():
            _check_trained(name, found, held)
        _check_known(optimizers, [each for found in known.values() for each in found])
    _check_stepped(objects, handlers)
    for name, found in known.items():
        for module in found:
            warn_if_it_drifts(f"objects[{name!r}]", module)


def check_evaluation(objects: Mapping[str, Any], handlers: Mapping[str, Any]) -> None:
    """Warn if an evaluation leaves the model in training mode.

    Args:
        objects: The engine's objects.
        handlers: Its handlers, some of which have an optimizer.
    """
    optimizers = _optimizers(objects, handlers).values()
    updated = {id(each) for optimizer in optimizers for each in _updated(optimizer)}
    found = modules.all_modules(objects.values())
    own = {id(each) for module in found for each in module.parameters(recurse=False)}
    if updated and (own.isdisjoint(updated) if own else not found):
        warn(
            "no module among the engine's objects has the parameters that its optimizer updates, "
            "so this evaluation leaves their module in training mode; name it: "
            'Engine(..., objects={"model": model, "optimizer": optimizer})'
        )


def warn_if_it_drifts(name: str, module: Any) -> None:
    """Warn if a module that does not learn, such as a teacher, updates running statistics."""
    parameters = list(module.parameters())
    if not parameters or any(each.requires_grad for each in parameters):
        return
    norms = [
        path or type(each).__name__
        for path, each in module.named_modules()
        if each.training and getattr(each, "running_mean", None) is not None
    ]
    if norms:
        warn(
            f"{name} has no trainable parameter and is in training mode, so that each batch which "
            f"goes through it changes its running statistics ({_some(norms)}). If it is a teacher "
            "that stays as it is, call .eval() on it before the run"
        )


def _check_trained(name: str, found: list[Any], held: set[int]) -> None:
    """Warn of trainable parameters that no optimizer holds."""
    left = [
        parameter
        for module in found
        for parameter, each in module.named_parameters()
        if each.requires_grad and id(each) not in held
    ]
    if left:
        warn(
            f"no optimizer of this engine holds these trainable parameters of objects[{name!r}], "
            f"so that no step changes them: {_some(left)} ({len(left)} in all). Make the optimizer "
            "after the last layer is replaced, or give it the parameters by "
            "optimizer.add_param_group(...); name a further optimizer in Engine(..., objects=...); "
            "freeze what is not to learn: requires_grad_(False)"
        )


def _check_known(optimizers: Mapping[str, Any], found: list[Any]) -> None:
    """Warn of an optimizer none of whose parameters belongs to a module that the engine knows."""
    own = {id(each) for module in found for each in module.parameters()}
    for name, optimizer in optimizers.items():
        if own and own.isdisjoint(map(id, _updated(optimizer))):
            warn(
                f"{name} updates parameters of no module among the engine's objects, so that "
                "checkpoints do not hold them and evaluations leave their module in training mode. "
                "If a model was replaced, make the optimizer of the new one; else name the module: "
                'Engine(..., objects={"model": model, "optimizer": optimizer})'
            )


def _check_stepped(objects: Mapping[str, Any], handlers: Mapping[str, Any]) -> None:
    """Warn of a handler for the gradients of an optimizer that the engine does not know."""
    updates = {name: each for name, each in handlers.items() if hasattr(each, "accumulate")}
    stepped = set(map(id, _optimizers(objects, updates).values()))
    for name, each in handlers.items():
        optimizer = getattr(each, "optimizer", None)
        if stepped and hasattr(optimizer, "param_groups") and id(optimizer) not in stepped:
            warn(
                f"{name} is for the steps of an optimizer that is neither that of an Update of "
                "this engine nor among its objects, so that it may wait for nothing: give it the "
                "optimizer that the Update has, or name this one: "
                'Engine(..., objects={"optimizer": optimizer})'
            )


def _optimizers(objects: Mapping[str, Any], handlers: Mapping[str, Any]) -> dict[str, Any]:
    """All optimizers that the engine knows, those of its updates and schedules included."""
    named = {f"objects[{name!r}]": each for name, each in objects.items()}
    owned = {
        f"the optimizer of {name}": getattr(each, "optimizer", None)
        for name, each in (*named.items(), *handlers.items())
    }
    found = {id(each): (name, each) for name, each in (*owned.items(), *named.items())}
    return {name: each for name, each in found.values() if hasattr(each, "param_groups")}


def _updated(optimizer: Any) -> Iterable[Any]:
    return (each for group in optimizer.param_groups for each in group["params"])


def _is_copy(thing: object) -> bool:
    return any(map(modules.is_copy, modules.modules_of(thing)))


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + ", ..." * (len(names) > SHOWN)
