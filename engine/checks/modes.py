"""The mode of a model at each epoch's start: a `model.eval()` that a handler has left behind."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from .. import modules
from ..events import Events
from ..explain import warn
from ..state import State
from .checked import Checked, is_optimizer, objects_by_place, optimizers_of, updated
from .reached import reached

logger: logging.Logger = logging.getLogger("camshaft")


class Modes:
    """Puts models back into training mode at an epoch's start, as `model.train()` in a loop does.

    If a handler puts a model into evaluation mode, say to sample after the epoch, all its modules
    get back the modes that they had at the epoch's first batch. The script's choices stay: a model
    that was in evaluation mode then, and modes of parts of a model, such as a BatchNorm that is
    frozen in the middle of the run. Models that the process function reaches are included.
    """

    def __init__(self, run: Checked) -> None:
        self._known: dict[int, str] = {}
        """The names of the models, by identity."""
        self._models: list[Any] = []
        self._before: list[tuple[Any, list[tuple[Any, bool]]]] = []
        """The models in training mode, with the mode of each module."""
        self._has_warned = sets_modes = "train" in run.words  # a `.train()` of its own
        things = objects_by_place(run.objects)
        things |= reached([run.process], lambda each: modules.is_module(each) or is_optimizer(each))
        optimizers = optimizers_of(things, run.handlers).values()
        trained = {id(each) for one in optimizers for each in updated(one)}
        for name, each in things.items():
            for model in modules.modules_of(each):
                own = {id(weight) for weight in model.parameters() if weight.requires_grad}
                is_trained = own & trained if trained else own
                if is_trained and self._known.setdefault(id(model), name) == name:
                    self._models.append(model)
        left = self._names(each for each in self._models if not each.training)
        if left and not sets_modes:
            warn(
                f"{_are(left)} in evaluation mode as training starts; call .train() before the "
                "run, unless that is what you want"
            )
        run.at(Events.EPOCH_STARTED, self._put_back)
        run.at(Events.EPOCH_STARTED, self._note, last=True)
        run.at(Events.EPOCH_COMPLETED, self._end_batches)
        run.at(Events.COMPLETED, self._end_inside)
        run.at(Events.CLOSED, self._end_interrupted)
        if run.state.in_epoch:  # a resumed epoch does not announce its start again
            self._note(run.state)

    def _note(self, state: State[Any, Any]) -> None:
        """Note the modes with which an epoch begins."""
        training = [model for model in self._models if model.training]
        self._before = [(each, [(m, m.training) for m in each.modules()]) for each in training]

    def _put_back(self, state: State[Any, Any]) -> None:
        """Begin an epoch in training mode if the previous epoch began in training mode."""
        self._warn(state.epoch - 1, "after the batches")
        for model, flags in self._before:
            if not model.training:
                for module, training in flags:
                    module.training = training

    def _end_batches(self, state: State[Any, Any]) -> None:
        self._warn(state.epoch, "at the last batch")

    def _end_inside(self, state: State[Any, Any]) -> None:
        """Check the modes if the run ends inside an epoch."""
        if state.in_epoch:
            self._end_batches(state)

    def _end_interrupted(self, state: State[Any, Any]) -> None:
        if state.is_interrupted and state.error is None:  # it has no COMPLETED
            self._end_inside(state)

    def _warn(self, epoch: int, when: str) -> None:
        """Warn, once, of models that were left in evaluation mode in an epoch."""
        left = self._names(model for model, _ in self._before if not model.training)
        if left and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s in evaluation mode %s of epoch %d, by a .eval() that nothing undid; training "
                "mode comes back with the next epoch, as by model.train() at its start in a loop. "
                "Write .train() after what needs evaluation mode, or let engine.evaluate do it; to "
                "train in evaluation mode from an epoch on, call .eval() at EPOCH_STARTED",
                *(_are(left), when, epoch),
            )

    def _names(self, found: Iterable[Any]) -> list[str]:
        """The names of these models; for a model and its wrapper, only the first name."""
        names, seen = list[str](), set[int]()
        for model in found:
            own = set(map(id, model.parameters()))
            if not own & seen:
                names.append(self._known[id(model)])
            seen |= own
        return names


def _are(names: list[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"
