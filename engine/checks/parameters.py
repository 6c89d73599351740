"""Parameters that a run leaves as they are, optimizers of other modules, teachers that drift."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .. import modules, ranks
from ..explain import warn
from ..names import few
from .sharded import check_sharded
from .unchanged import are_equal, sample

if TYPE_CHECKING:
    from ..update import Update

UPDATES = f"{__name__.partition('.engine.')[0]}.engine.update"


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
    optimizers = optimizers_of(objects, handlers)
    if ranks.is_distributed():
        modules.reshard(modules.fully_sharded(objects.values()))  # after a forward pass alone
        check_sharded(objects, [*updates_of(handlers).values(), *optimizers.values()])
    if optimizers:
        _check_known(optimizers, [each for found in known.values() for each in found])
    _check_stepped(objects, handlers)


class Idle:
    """Warns of weights that no optimizer of the engine holds, and of teachers that drift.

    Where an optimizer holds a part of a module, or there is one whose module is unknown, it is told
    at once. Else the module may be moved by hand, as a target network is: it is told at the end of
    the first epoch if nobody moved it, and a backward pass gave it gradients or it is frozen.

    Args:
        objects: The engine's objects.
        handlers: Its handlers, some of which have an optimizer.
    """

    def __init__(self, objects: Mapping[str, Any], handlers: Mapping[str, Any]) -> None:
        self._found: list[tuple[str, Any, list[Any]]] = []
        """Modules that may be moved by hand, by name, with numbers of their parameters."""
        if "torch" not in sys.modules:
            return
        optimizers = optimizers_of(objects, handlers).values()
        held = {id(each) for optimizer in optimizers for each in updated(optimizer)}
        all_own = {id(p) for m in modules.all_modules(objects.values()) for p in m.parameters()}
        is_sure = any(all_own.isdisjoint(map(id, updated(each))) for each in optimizers)
        for name, thing in objects.items():
            found = [] if _is_copy(thing) else modules.modules_of(thing)
            left = _left(found, held) if optimizers else {}
            some = any(id(each) in held for module in found for each in module.parameters())
            if left and (is_sure or some):
                warn(_untrained(name, left))
            elif left or any(map(_drifts, found)):
                self._found += [(name, each, _numbers(each)) for each in found]

    def check(self) -> None:
        """Tell of what nobody has moved."""
        for name, module, before in self._found:
            if not are_equal(_numbers(module), before):
                continue
            warn_if_it_drifts(f"objects[{name!r}]", module)
            if left := {n: p for n, p in _left([module], set()).items() if p.grad is not None}:
                warn(_untrained(name, left))
        self._found = []


def check_evaluation(objects: Mapping[str, Any], handlers: Mapping[str, Any]) -> None:
    """Warn if an evaluation leaves the model in training mode.

    Args:
        objects: The engine's objects.
        handlers: Its handlers, some of which have an optimizer.
    """
    optimizers = optimizers_of(objects, handlers).values()
    trained = {id(each) for optimizer in optimizers for each in updated(optimizer)}
    found = modules.all_modules(objects.values())
    own = {id(each) for module in found for each in module.parameters(recurse=False)}
    if trained and (own.isdisjoint(trained) if own else not found):
        warn(
            "no module among the engine's objects has the parameters that its optimizer updates, "
            "so this evaluation leaves their module in training mode; name it: "
            'Engine(..., objects={"model": model, "optimizer": optimizer})'
        )


def warn_if_it_drifts(name: str, module: Any) -> None:
    """Warn if a module that does not learn, such as a teacher, updates running statistics."""
    if norms := _drifts(module):
        warn(
            f"{name} has no trainable parameter and is in training mode, so that each batch which "
            f"goes through it changes its running statistics ({few(norms, 3)}). If it is a teacher "
            "that stays as it is, call .eval() on it before the run"
        )


def _drifts(module: Any) -> list[str]:
    """The norms in training mode of a module without trainable parameters."""
    parameters = list(module.parameters())
    if not parameters or any(each.requires_grad for each in parameters):
        return []
    return [
        path or type(each).__name__
        for path, each in module.named_modules()
        if each.training and getattr(each, "running_mean", None) is not None
    ]


def _left(found: list[Any], held: set[int]) -> dict[str, Any]:
    """The trainable parameters that no optimizer holds, by their names."""
    return {
        name: each
        for module in found
        for name, each in module.named_parameters()
        if each.requires_grad and id(each) not in held
    }


def _numbers(module: Any) -> list[Any]:
    return [sample(each) for each in module.parameters()]


def _untrained(name: str, left: Mapping[str, Any]) -> str:
    return (
        f"no optimizer of this engine holds these trainable parameters of objects[{name!r}], "
        f"so that no step changes them: {few(left, 3)} ({len(left)} in all). Make the optimizer "
        "after the last layer is replaced, or give it the parameters by "
        "optimizer.add_param_group(...); name a further optimizer in Engine(..., objects=...); "
        "freeze what is not to learn: requires_grad_(False)"
    )


def _check_known(optimizers: Mapping[str, Any], found: list[Any]) -> None:
    """Warn of an optimizer none of whose parameters belongs to a module that the engine knows."""
    own = {id(each) for module in found for each in module.parameters()}
    for name, optimizer in optimizers.items():
        if own and own.isdisjoint(map(id, updated(optimizer))):
            warn(
                f"{name} updates parameters of no module among the engine's objects, so that "
                "checkpoints do not hold them and evaluations leave their module in training mode. "
                "If a model was replaced, make the optimizer of the new one; else name the module: "
                'Engine(..., objects={"model": model, "optimizer": optimizer})'
            )


def _check_stepped(objects: Mapping[str, Any], handlers: Mapping[str, Any]) -> None:
    """Warn of a handler for the gradients of an optimizer that the engine does not know."""
    stepped = set(map(id, optimizers_of(objects, updates_of(handlers)).values()))
    for name, each in handlers.items():
        optimizer = getattr(each, "optimizer", None)
        if stepped and hasattr(optimizer, "param_groups") and id(optimizer) not in stepped:
            warn(
                f"{name} is for the steps of an optimizer that is neither that of an Update of "
                "this engine nor among its objects, so that it may wait for nothing: give it the "
                "optimizer that the Update has, or name this one: "
                'Engine(..., objects={"optimizer": optimizer})'
            )


def is_update(thing: object) -> bool:
    """True for an `Update`: where its room was not imported, which needs torch, there is none."""
    room: Any = sys.modules.get(UPDATES)
    return room is not None and isinstance(thing, room.Update)


def updates_of(handlers: Mapping[str, Any]) -> dict[str, Update]:
    """The updates among handlers, by name."""
    return {name: each for name, each in handlers.items() if is_update(each)}


def is_optimizer(thing: object) -> bool:
    """True for what holds parameters in groups, as torch's optimizers do."""
    return hasattr(type(thing), "add_param_group")


def optimizers_of(objects: Mapping[str, Any], handlers: Mapping[str, Any]) -> dict[str, Any]:
    """All optimizers that the engine knows, those of its updates and schedules included."""
    named = {f"objects[{name!r}]": each for name, each in objects.items()}
    owned = {
        f"the optimizer of {name}": getattr(each, "optimizer", None)
        for name, each in (*named.items(), *handlers.items())
    }
    found = {id(each): (name, each) for name, each in (*owned.items(), *named.items())}
    return {name: each for name, each in found.values() if hasattr(each, "param_groups")}


def updated(optimizer: Any) -> Iterable[Any]:
    """The parameters that an optimizer updates."""
    return (each for group in optimizer.param_groups for each in group["params"])


def _is_copy(thing: object) -> bool:
    return any(map(modules.is_copy, modules.modules_of(thing)))
