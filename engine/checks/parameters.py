"""Parameters that no step changes, optimizers of unknown modules, teachers that drift."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .. import modules
from ..changes import address_of, addresses_in, reached
from ..events import Events
from ..explain import warn
from ..modules import parameters_of
from ..names import few
from .checked import Check, Checked, objects_by_place, optimizers_of

PLAIN = (list, tuple, dict)
"""Containers in which a module of torch does not look for its parts."""
WIDEST = 1000
"""The most elements of a container that is searched: a larger one is data."""

OFTEN = 100
"""So many epochs are looked at one by one: thousands may have one batch each."""


def refuse_autocast() -> None:
    """Refuse an autocast around a run: its copies of the weights last until it ends."""
    torch = sys.modules["torch"]
    if torch.is_autocast_cache_enabled() and any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
        raise RuntimeError(
            "the run is in a `with torch.autocast(...)`, which keeps its cast copies of the "
            "weights until it ends, so that each step would compute with the first weights. Leave "
            'it out and write supervised(..., precision="bf16"); or put it into the process '
            "function; or give it cache_enabled=False"
        )


def check_known(run: Checked) -> None:
    """Warn of an optimizer with misspelled settings, or whose module the engine does not know."""
    for name, optimizer in run.optimizers.items():
        if defaults := getattr(optimizer, "defaults", {}):
            keys = set[Any]()
            for group in optimizer.param_groups:
                keys |= group.keys()
            keys -= {"params", *defaults}
            _warn_of_misspelled(name, keys, optimizer)
    found = [module for thing in run.objects.values() for module in _own_modules(thing)]
    own = {id(each) for module in found for each in module.parameters()}
    for name, optimizer in run.optimizers.items():
        if (
            not own
            or not own.isdisjoint(map(id, parameters_of(optimizer)))
            or _is_bare(optimizer, run)
        ):
            continue
        others = (each for each in run.objects.values() if not modules.is_module(each))
        if not {address_of(each) for each in parameters_of(optimizer)} <= addresses_in(others):
            warn(
                f"{name} updates parameters of no module among the engine's objects, so that "
                "checkpoints do not hold them and evaluations leave their module in training mode. "
                "If a model was replaced, make the optimizer of the new one; else name the module: "
                'Engine(..., objects={"model": model, "optimizer": optimizer})'
            )


def _warn_of_misspelled(name: str, keys: set[Any], optimizer: Any) -> None:
    """Warn of a key of parameter groups that is like a setting: torch reads past it."""
    defaults = optimizer.defaults
    for key in sorted(map(str, keys)):
        from difflib import get_close_matches  # here, to keep imports fast

        if any(hasattr(group.get(key), "shape") for group in optimizer.param_groups):
            continue  # a state that it keeps there, as IVON does
        found = ["lr"] if key == "learning_rate" else get_close_matches(key, defaults, 1, 0.75)
        for meant in found:
            if not (key.startswith(f"{meant}_") or key.endswith(f"_{meant}")):
                warn(
                    f"a parameter group of {name} has {key!r}, which the optimizer does not read: "
                    f"{meant!r} was probably meant"
                )


def _warn_of_scales(run: Checked) -> None:
    """Warn of scales of rates for layers, as timm's layer decay writes, that nothing applies."""
    for name, optimizer in run.optimizers.items():
        if "lr_scale" not in optimizer.param_groups[-1]:
            continue
        groups = [each for each in optimizer.param_groups if "lr_scale" in each]
        rates = {float(each["lr"]) for each in groups} - {0.0}
        if len({each["lr_scale"] for each in groups}) > 1 and len(rates) == 1:
            warn(
                f"the groups of {name} differ in 'lr_scale', which no optimizer reads, and "
                "have one 'lr': all layers train at one rate. Give LRSchedule a scheduler of timm, "
                "which multiplies by it, or write it into the rates before other schedules: for "
                'group in optimizer.param_groups: group["lr"] *= group.pop("lr_scale")'
            )


def _is_bare(optimizer: Any, run: Checked) -> bool:
    """True if it updates tensors of no module, such as a temperature that the step names."""
    nn = sys.modules["torch"].nn
    own = [id(each) for each in parameters_of(optimizer) if isinstance(each, nn.Parameter)]
    if not own or own[0] in run.weights:
        return not own
    found = reached([run.process], lambda kind: issubclass(kind, nn.Parameter | nn.Module))
    return not {*own}.isdisjoint(map(id, found.values()))


def check_stepped(run: Checked) -> None:
    """Warn of a handler for the gradients of an optimizer that the engine does not know."""
    stepped = {*map(id, optimizers_of(objects_by_place(run.objects), run.updates).values())}
    for name, each in run.handlers.items():
        optimizer = getattr(each, "optimizer", None)
        if stepped and hasattr(optimizer, "param_groups") and id(optimizer) not in stepped:
            warn(
                f"{name} is for the steps of an optimizer that is neither that of an Update of "
                "this engine nor among its objects, so that it may wait for nothing: give it the "
                "optimizer that the Update has, or name this one: "
                'Engine(..., objects={"optimizer": optimizer})'
            )


def check_idle(run: Checked) -> Check:
    """Warn of weights that no optimizer of the engine holds, and of teachers that drift.

    If an optimizer holds a part of the module, or the module of an optimizer is unknown, the
    warning comes at once. Else the script may change it by hand, such as a target network: the
    warning comes after the first epoch if it is unchanged and has gradients, or is frozen. What a
    function unfreezes or makes later is told of at the end of its epoch; behind epoch `OFTEN`, at
    the end of epochs 128, 256 and so on.
    """
    optimizers = [each for each in run.optimizers.values() if not _is_bare(each, run)]
    unmoved = list[tuple[str, Any, list[Any]]]()
    known, trained = set[int](), list[tuple[str, list[Any]]]()
    is_sure = any(run.weights.isdisjoint(map(id, parameters_of(each))) for each in optimizers)
    for name, thing in run.objects.items():
        own = _own_modules(thing)
        left = _left(own, run.trained) if optimizers else {}
        some = any(id(each) in run.trained for module in own for each in module.parameters())
        if some:
            trained.append((name, own))
            known.update(map(id, left.values()))
        if left and (is_sure or some):
            warn(_untrained(name, left))
        elif left or any(map(_drifts, own)):
            unmoved += [(name, each, _numbers(each)) for each in own]

    yield from run.first_epoch()
    _warn_of_scales(run)  # a schedule may have applied them by now
    for name, module, before in unmoved:
        if _numbers(module) == before:
            warn_if_it_drifts(f"objects[{name!r}]", module)
            if left := {n: p for n, p in _left([module], set()).items() if p.grad is not None}:
                warn(_untrained(name, left))

    while trained:
        held = known.union(*(map(id, parameters_of(each)) for each in run.optimizers.values()))
        for name, own in trained:
            if left := {n: p for n, p in _left(own, held).items() if p.grad is not None}:
                warn(_untrained(name, left))
                return
        yield (Events.EPOCH_COMPLETED,)
        while (epoch := run.state.epoch) > OFTEN and epoch & (epoch - 1):
            yield (Events.EPOCH_COMPLETED,)


def warn_of_hidden(run: Checked) -> None:
    """Warn of layers that a module keeps in a plain list or dict, where no optimizer finds them.

    After an iteration, their gradients are left, since no optimizer clears them.
    """
    found = {n: own for n, thing in run.objects.items() for own in _own_modules(thing)}
    parts = {id(each) for own in found.values() for each in own.modules()}
    known = run.trained.union(*(map(id, each.parameters()) for each in found.values()))
    kind = sys.modules["torch"].nn.Parameter
    for name, outer in found.items():
        for path, module in outer.named_modules():
            for field, value in vars(module).items():
                if type(value) not in PLAIN or not value or field in ("_modules", "_parameters"):
                    continue
                place = ".".join(filter(None, (name, path, field)))
                inside = _inside(value)
                if deaf := [each for each in inside if _is_deaf(each, parts)]:
                    warn(
                        f"{place} holds {few([type(each).__name__ for each in deaf], 3)} in "
                        "training mode, also in evaluations: .eval() does not find what a plain "
                        f"{type(value).__name__} holds. Write self.{field} = nn.ModuleList(...)"
                    )
                own = [p for e in inside if modules.is_module(e) for p in e.parameters()]
                own = [e for e in (*own, *inside) if isinstance(e, kind) and id(e) not in known]
                if any(each.grad is not None for each in own):
                    warn(
                        f"no step changes the {len(own)} parameters in {place}, and no "
                        f"checkpoint holds them, since a module does not find them in a plain "
                        f"{type(value).__name__}. Write self.{field} = nn.ModuleList(...), or "
                        "ModuleDict, ParameterList or ParameterDict, and make the optimizer then; "
                        "freeze what is not to learn: requires_grad_(False)"
                    )


def _inside(value: Any, depth: int = 3) -> list[Any]:
    """What is in a list or dict, and in those in it."""
    if not isinstance(value, PLAIN):
        return [value]
    if len(value) > WIDEST or not depth:
        return []
    items = value.values() if isinstance(value, dict) else value
    return [each for item in items for each in _inside(item, depth - 1)]


def _is_deaf(thing: Any, known: set[int]) -> bool:
    """True for a dropout or a norm in training mode that is no part of a module, and no teacher."""
    if not modules.is_module(thing) or id(thing) in known or [*thing.parameters()]:
        return False
    found = (each for each in thing.modules() if each.training)
    return any(
        getattr(each, "running_mean", None) is not None
        or ("Dropout" in type(each).__name__ and getattr(each, "p", 0))
        for each in found
    )


def warn_if_it_drifts(name: str, module: Any) -> None:
    """Warn if a module without trainable parameters, such as a teacher, updates statistics."""
    if norms := _drifts(module):
        warn(
            f"{name} has no trainable parameter and is in training mode, so that each batch which "
            f"goes through it changes its running statistics ({few(norms, 3)}). If it is a teacher "
            "that stays as it is, call .eval() on it before the run"
        )


def _drifts(module: Any) -> list[str]:
    """The normalization layers in training mode, in a module without trainable parameters."""
    parameters = list(module.parameters())
    if not parameters or any(each.requires_grad for each in parameters):
        return []
    return [
        path or type(each).__name__
        for path, each in module.named_modules()
        if each.training and getattr(each, "running_mean", None) is not None
    ]


def _left(found: list[Any], trained: set[int]) -> dict[str, Any]:
    """The trainable parameters that no optimizer updates, by their names."""
    return {
        name: each
        for module in found
        for name, each in module.named_parameters()
        if each.requires_grad and id(each) not in trained
    }


def _numbers(module: Any) -> list[Any]:
    return [modules.sample(each) for each in module.parameters()]


def _untrained(name: str, left: Mapping[str, Any]) -> str:
    return (
        f"no optimizer of this engine holds these trainable parameters of objects[{name!r}], "
        f"so that no step changes them: {few(left, 3)} ({len(left)} in all). Make the optimizer "
        "after the last layer is replaced, or give it the parameters by "
        "optimizer.add_param_group(...); name a further optimizer in Engine(..., objects=...); "
        "freeze what is not to learn: requires_grad_(False)"
    )


def _own_modules(thing: object) -> list[Any]:
    """The modules of an object; none if it is an average or the best weights."""
    found = modules.modules_of(thing)
    return [] if any(map(modules.is_copy, found)) else found
