"""The forward pass, the loss and the backward pass of a batch as one recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module

from .. import ranks
from ..capturing import MANY, WARMING, CapturedStep, Told, explained_recording
from ..events import Events, Stage
from ..modules import modules_of
from ..outputs import Output
from ..state import State
from ..update import Update
from .nested import mapped
from .split import Forward

if TYPE_CHECKING:
    from ..engine import Engine

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass
class Pass:
    """A recording for batches of one size, in one state of the model."""

    key: Any
    inputs: list[Tensor]
    scale: Tensor | None
    launch: Callable[[], object]
    output: Output
    gradients: list[tuple[Tensor, Tensor | None]]
    """Each parameter, and where its gradient is after a launch; None if it has none."""


class CapturedPass:
    """Takes batches through the model and back by recordings, one for each size of a batch.

    The first batches of a size run as they are. A recording copies its batch to where it reads it;
    handlers get copies of what it made, since the next launch overwrites that.
    """

    def __init__(self, roots: Iterable[object], step: CapturedStep, place: torch.device) -> None:
        """Prepare recordings.

        Args:
            roots: The model and the loss function.
            step: Records the optimizer's step.
            place: The device of the model.
        """
        self.roots = [module for each in roots for module in modules_of(each)]
        self.step = step
        self.recorder = step.recorder
        self.place = place
        self.told = Told()
        self._passes: list[Pass] = []
        self._seen: list[list[Any]] = []
        self._modules: list[Module] = []
        self._weights: list[Tensor] = []

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Look at the model when a run or an epoch starts; tell how many batches were served."""
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.begin)
        engine.on(Events.EPOCH_STARTED, stage=Stage.REPORT)(self.look)
        engine.on(Events.EPOCH_COMPLETED, stage=Stage.REPORT)(self.told.tell)

    def begin(self, state: State[Any, Any]) -> None:
        """Refuse what a recording would do wrongly.

        Raises:
            ValueError: There are several ranks, or modules have hooks.
        """
        if ranks.is_distributed():
            raise ValueError(
                "compile='cuda-graphs' records the step of one process, and there are "
                f"{ranks.world_size()} ranks; compile={{'mode': 'reduce-overhead'}} lets torch "
                "record the parts between their messages"
            )
        self._find_weights()
        for each in self._modules:
            hooks = chain.from_iterable(getattr(each, name).values() for name in HOOKS)
            if own := [hook for hook in hooks if not _is_of_torch(hook)]:
                raise ValueError(
                    f"compile='cuda-graphs': a {type(each).__name__} has the hook "
                    f"{getattr(own[0], '__qualname__', own[0])!r}, and a recording calls no "
                    "Python: remove the hook, or leave compile= out"
                )
        self.told.begin(state)

    def look(self, state: State[Any, Any]) -> None:
        """Note the modules and weights, which handlers may have exchanged."""
        self._find_weights()

    def _find_weights(self) -> None:
        self._modules = [module for each in self.roots for module in each.modules()]
        weights = ((*each.parameters(), *each.buffers()) for each in self.roots)
        self._weights = list(chain.from_iterable(weights))

    def take(
        self, state: State[Any, Any], pair: tuple[Any, Any], forward: Forward, update: Update
    ) -> Output:
        """The output of a batch, whose gradients are there."""
        return update.compute(state, partial(self._run, pair, forward), self.place)

    def _run(self, pair: tuple[Any, Any], forward: Forward, scale: Tensor | None) -> Output:
        key = self._key(pair)
        found = next((each for each in self._passes if _same(each.key, key)), None)
        if found is None and not self._is_due(key):
            self.told.plain += 1
            with self.recorder.aside():
                return backward(forward, pair, scale)
        parameters = [each for each in self._weights if each.requires_grad]
        self.step.gradients.adopt(parameters)  # of micro-batches that ran as they are
        if found is None:
            found = self._record(key, pair, forward, scale, parameters)
        self.told.replayed += 1
        given = _tensors(pair)
        for into, value in zip(found.inputs, given, strict=True):
            into.copy_(value)
        if found.scale is not None and scale is not None:
            found.scale.copy_(scale)
        found.launch()
        for parameter, gradient in found.gradients:
            parameter.grad = gradient
        return _copied(found, given)

    def _key(self, pair: tuple[Any, Any]) -> Any:
        """All that a recording would keep."""
        weights = self._weights
        return (
            *(_each(pair, self._form), [each.training for each in self._modules]),
            *([each.data_ptr() for each in weights], [each.requires_grad for each in weights]),
            [each.grad is None for each in weights],
        )

    def _form(self, tensor: Tensor) -> Any:
        """The form of a tensor; of one on another device, nothing that another one equals."""
        if tensor.device != self.place:
            return object()
        return tensor.shape, tensor.stride(), tensor.dtype

    def _is_due(self, key: Any) -> bool:
        """True if batches of this key ran often enough as they are."""
        if len(self._passes) >= MANY:
            return False
        for each in self._seen:
            if _same(each[0], key):
                each[1] += 1
                return bool(each[1] > WARMING)
        self._seen = [*self._seen[-MANY:], [key, 1]]
        return False

    def _record(
        self,
        key: Any,
        pair: tuple[Any, Any],
        forward: Forward,
        scale: Tensor | None,
        parameters: list[Tensor],
    ) -> Pass:
        self.step.gradients.keep(parameters)
        own = _each(pair, Tensor.clone)
        factor = None if scale is None else scale.clone()

        def launch() -> Output:
            made = backward(forward, own, factor)
            self.step.gradients.adopt(parameters)
            return made

        before = [*map(id, self._weights)]
        replay, output = explained_recording(lambda: self.recorder.record(launch))
        self._find_weights()
        if before != [*map(id, self._weights)]:
            raise ValueError(
                "compile='cuda-graphs': the model replaces one of its parameters or buffers in its "
                "forward pass, and a recording goes on with the old one: write into the buffer, "
                "self.mean.copy_(...), or leave compile= out"
            )
        made = [(each, each.grad) for each in parameters]
        self._passes.append(Pass(key, _tensors(own), factor, replay, output, made))
        self.told.recorded += 1
        return self._passes[-1]


def backward(forward: Forward, pair: tuple[Any, Any], scale: Tensor | None) -> Output:
    """A batch through the model and back."""
    loss, output = forward(pair)
    if loss is not None:
        (loss if scale is None else loss * scale).backward()
    return output


def _copied(found: Pass, given: list[Tensor]) -> Output:
    """What a recording made, in tensors of its own; of its inputs, those of the batch."""
    inputs = {id(each): value for each, value in zip(found.inputs, given, strict=True)}

    def copy(tensor: Tensor) -> Tensor:
        return inputs[id(tensor)] if id(tensor) in inputs else tensor.clone()

    return Output(*_each(tuple(found.output), copy))


def _each(nested: tuple[Any, ...], change: Callable[[Tensor], Any]) -> tuple[Any, ...]:
    """The same structure with all tensors changed; most have them at its top."""
    return tuple(
        change(each) if type(each) is Tensor else mapped(each, change) if each is not None else None
        for each in nested
    )


def _tensors(nested: tuple[Any, ...]) -> list[Tensor]:
    """All tensors, in the order in which `_each` changes them."""
    found: list[Tensor] = []
    _each(nested, found.append)
    return found


def _same(one: Any, other: Any) -> bool:
    """True if they are equal; False also for what cannot be compared, such as arrays."""
    try:
        return bool(one == other)
    except (TypeError, ValueError, RuntimeError):
        return False


def _is_of_torch(hook: Any) -> bool:
    return str(getattr(hook, "__module__", type(hook).__module__)).startswith("torch.")
