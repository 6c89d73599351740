"""The mode of a model: a `model.eval()` that a handler has left behind, an unknown model."""

from __future__ import annotations

import gc
import logging
import sys
from typing import Any

from ..changes import reached, trains
from ..events import Events
from ..explain import warn
from ..modules import modules_of, parameters_of
from .checked import Check, Checked, objects_by_place, optimizers_of

Named = tuple[str, Any]
"""A model, after the expression that names it."""

logger: logging.Logger = logging.getLogger("camshaft")


def check_modes(run: Checked) -> Check:
    """Put models back into training mode at an epoch's start, as `model.train()` in a loop does.

    All modules of a model that a handler has put into evaluation mode get back the modes that they
    had at the epoch's first batch. The script's choices stay: a model that was in evaluation mode
    then, and modes of parts, such as a BatchNorm that is frozen in the middle of the run.
    """
    state, models, has_warned = run.state, _trained(run), False

    def warn_of(left: list[Named], when: str, epoch: int) -> None:
        nonlocal has_warned
        if not has_warned:
            has_warned = True
            logger.warning(
                "%s in evaluation mode %s of epoch %d, by a .eval() that nothing undid; training "
                "mode comes back with the next epoch, as by model.train() at its start in a loop. "
                "Write .train() after what needs evaluation mode, or let engine.evaluate do it; to "
                "train in evaluation mode from an epoch on, call .eval() at EPOCH_STARTED",
                *(_are(left), when, epoch),
            )

    yield (Events.ITERATION_STARTED,)
    if _evaluating(models):
        yield (Events.ITERATION_COMPLETED,)  # the process function may set the mode
        if left := _evaluating(models):
            warn(
                f"{_are(left)} in evaluation mode as training starts; call .train() before the "
                "run, unless that is what you want"
            )
    while True:
        began = [(name, model) for name, model in models if model.training]
        flags = {id(model): [(m, m.training) for m in model.modules()] for _, model in began}
        moment = yield Events.EPOCH_COMPLETED, Events.COMPLETED, Events.CLOSED
        is_end = moment is Events.EPOCH_COMPLETED or state.in_epoch
        if is_end and state.error is None and (left := _evaluating(began)):
            warn_of(left, "at the last batch", state.epoch)
        yield (Events.EPOCH_STARTED,)
        if left := _evaluating(began):
            warn_of(left, "after the batches", state.epoch - 1)
        for _, model in left:
            model.train()  # which may drop what an evaluation has cached
            for module, training in flags[id(model)]:
                module.training = training
        yield (Events.ITERATION_STARTED,)  # the first batch


def _trained(run: Checked) -> list[Named]:
    """The models that are trained, each once."""
    things = objects_by_place(run.objects) | reached([run.process], trains)
    optimizers = optimizers_of(things, run.handlers).values()
    trained = {id(each) for one in optimizers for each in parameters_of(one)}
    found: dict[int, Named] = {}
    for name, each in things.items():
        for model in modules_of(each):
            own = {id(weight) for weight in model.parameters() if weight.requires_grad}
            if own & trained if trained else own:
                found.setdefault(id(model), (name, model))
    return [*found.values()]


def _evaluating(models: list[Named]) -> list[Named]:
    return [(name, model) for name, model in models if not model.training]


def _are(found: list[Named]) -> str:
    """The names of these models; for a model and its wrapper, only the first name."""
    names, seen = list[str](), set[int]()
    for name, model in found:
        own = set(map(id, model.parameters()))
        names += [] if own & seen else [name]
        seen |= own
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


def check_evaluation(run: Checked) -> None:
    """Warn if an evaluation leaves the model in training mode."""
    if run.trained and run.weights.isdisjoint(run.trained) and _is_in_a_module(run.trained):
        warn(
            "no module among the engine's objects has the parameters that its optimizer updates, "
            "so this evaluation leaves their module in training mode; name it: "
            'Engine(..., objects={"model": model, "optimizer": optimizer})'
        )


def _is_in_a_module(parameters: set[int]) -> bool:
    """True if a module of the process has one of these; lists of parameters have no mode."""
    nn: Any = sys.modules["torch.nn"]
    plain = (nn.ParameterList, nn.ParameterDict)
    found = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
    held = (one for each in found if not isinstance(each, plain) for one in each.parameters())
    return any(id(one) in parameters for one in held)
