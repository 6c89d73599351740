"""A step's forward and backward pass, computed twice and compared bit by bit before it counts."""

from __future__ import annotations

import logging
import platform
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from io import IOBase
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ....engine import Engine, Events, Moments, Stage, State, ranks
from ....engine.checks import Changes, reached, sample
from ....engine.modules import all_modules, fully_sharded, is_compiled, local, plain_names
from ....engine.signals import Signals
from ....engine.state import LatestMetrics
from ....engine.update import Update, parameters_of
from ..prove import difference_of, leaves, mark_of
from ..search import as_before

logger: logging.Logger = logging.getLogger("camshaft")

Weights = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class ReplayCheck:
    """Compute a step's forward and backward pass twice, and compare the bits, before it counts.

    A chip that computes wrong without a word, and a kernel that is not deterministic, give other
    bits the second time: of the loss, or of a gradient as this rank has computed it, before ranks
    average. The optimizer has not moved by then. A run with this handler is the same run to the
    last bit as one without: between the passes, random generators, buffers, modes, a scaler, what
    the process function remembers and the script's own values are put back. Other iterations cost
    nothing; a checked one costs a second pass, and checksums of all gradients.

    The first check, in iteration `every`, finds a kernel that is not deterministic, since it
    differs every time; its gradient is named, and `torch.use_deterministic_algorithms(True)` names
    the kernel. A difference that comes later is a reason to examine the machine.

    Args:
        every: Check one iteration of so many. The first iteration is never checked: libraries
            choose their kernels in it, and `DistributedDataParallel` its buckets.
        on_difference: `"raise"` to end the run; `"warn"` to tell of it and go on with the second
            pass.

    Raises:
        RuntimeError: The passes differ: the message names rank, host and the first tensor. Or the
            process function does in the first pass what cannot be undone.
        ValueError: A second pass cannot be exact for a run of this kind, or an argument is wrong.

    >>> ReplayCheck(every=0)
    Traceback (most recent call last):
    ...
    ValueError: ReplayCheck(every=0): needs a number of iterations, from 1
    """

    every: int = 1000
    _: KW_ONLY
    on_difference: Literal["raise", "warn"] = "raise"

    def __post_init__(self) -> None:
        every = self.every
        if type(every) is not int or every < 1:
            raise ValueError(f"ReplayCheck(every={every!r}): needs a number of iterations, from 1")
        if self.on_difference not in ("raise", "warn"):
            raise ValueError(
                f"ReplayCheck(on_difference={self.on_difference!r}): needs 'raise' or 'warn'"
            )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Refuse what cannot be computed twice; compute the first pass before the other one."""
        when = Events.ITERATION_STARTED(every=self.every, after=1)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.begin)
        engine.on(when, stage=Stage.REPORT)(self.check)
        engine.on(Events.CLOSED, stage=Stage.MEASURE)(self.close)

    def begin(self, state: State[Any, Any]) -> None:
        """Refuse a run whose second pass would not be exact.

        Raises:
            ValueError: What does not go together, and what to do.
        """
        if why := _hindrance(state.engine):
            raise ValueError(f"ReplayCheck computes a step twice, and {why}")

    def check(self, state: State[Any, Any]) -> None:
        """Compute the first pass, take it back, and compare the pass that follows with it."""
        (update,) = _updates(state.engine)
        weights = _named_weights(state.engine, update)
        with _taken_back(state, update, weights):
            marks = _first_pass(state, update, weights)
        moments, step = state.control.moments, state.step_under_way
        second: Any = Marks(weights, step.check)  # what an update tells goes to it
        assert moments is not None
        step.check = second
        calls = Events.BACKWARD_COMPLETED, Events.ITERATION_COMPLETED

        def compare(state: State[Any, Any]) -> None:
            for event in calls:  # the first of the two; a window may stay open
                moments.drop_check(event, compare)
            self.close(state)
            second.look()
            self._compare(state, marks, second.marks)

        state.recall(self, dict[str, Marks], saved=False)["second"] = second
        for event in calls:
            moments.add_check(event, compare)

    def close(self, state: State[Any, Any]) -> None:
        """Look at gradients no more, also after an error in the second pass."""
        second = state.recall(self, dict[str, Marks], saved=False).pop("second", None)
        if second is not None:
            second.close()
            state.step_under_way.check = second.inner

    def _compare(self, state: State[Any, Any], one: dict[str, str], two: dict[str, str]) -> None:
        found, own = difference_of(one, two), None
        if found is not None:
            device = str(parameters_of(state.optimizer)[0].device) if state.optimizer else "cpu"
            if device.startswith("cuda"):
                device += f" ({torch.cuda.get_device_name(device)})"
            own = f"rank {ranks.rank()} on {platform.node()}, {device}, in {found['text']}"
        told = [each for each in ranks.gathered(own) if each is not None]
        if not told:
            return
        message = (
            f"iteration {state.iteration} was computed twice from the same weights, batch and "
            f"random numbers, and the bits differ: {'; '.join(told)}. If this is so in each check, "
            "a kernel is not deterministic: torch.use_deterministic_algorithms(True) names it. If "
            "it came only now, the device may compute wrong: examine it, and train on without it "
            "from the last checkpoint"
        )
        if self.on_difference == "raise":
            raise RuntimeError(f"{message}. The optimizer has not made this step")
        if ranks.rank() == 0:
            logger.warning("%s", message)


class Marks:
    """The marks of what one pass computes, by name, in the order in which they came.

    An update tells it each loss, in the place of the check of gradients, which hears of it too.
    """

    def __init__(self, weights: Weights, inner: Any = None) -> None:
        self.marks: dict[str, str] = {}
        self.updates: set[Update] = set()
        """The updates that got a loss."""
        self.steps: int = 0
        """How often gradients were whole."""
        self.inner: Any = inner
        self._weights = weights
        self._hooks: list[tuple[Any, Any]] = []
        for name, each in weights.items():
            if each.requires_grad:
                self._hooks.append((each, each._backward_hooks))
                each.register_hook(partial(self._note, f"the gradient of {name}"))

    def enter(self, update: Update, loss: Any = None, *, is_mean: bool = False) -> None:
        """Note the loss that an update is given."""
        if isinstance(loss, Tensor):
            self.updates.add(update)
            self._note("the loss", loss)
        if self.inner is not None:
            self.inner.enter(update, loss, is_mean=is_mean)

    def leave(self, update: Update) -> None:
        """Tell the check of gradients that a backward pass or a step is over."""
        if self.inner is not None:
            self.inner.leave(update)

    def look(self) -> None:
        """Note the gradients of weights that no hook hears of, such as those of `fully_shard`."""
        for name, each in self._weights.items():
            if (place := f"the gradient of {name}") not in self.marks and each.grad is not None:
                self._note(place, each.grad)

    def close(self) -> None:
        """Leave no hook behind, nor its table, which each backward pass would read."""
        for each, before in self._hooks:
            each._backward_hooks = before
        self._hooks.clear()

    def skip(self, state: State[Any, Any]) -> None:
        """At the whole gradients of a pass that does not count: look at them, and make no step."""
        self.steps += 1
        self.look()
        state.skip_step()

    def _note(self, name: str, value: Tensor) -> None:
        place, number = name, 1
        while place in self.marks:  # another part of the micro-batch
            place, number = f"{name}, part {number + 1}", number + 1
        self.marks[place] = mark_of(local(value))


def _first_pass(state: State[Any, Any], update: Update, weights: Weights) -> dict[str, str]:
    """Call the process function with copies of the state and the batch; what it computes."""
    engine, first = state.engine, Marks(weights)
    aside = _aside(state, first)
    fired = dict(aside.counts)
    before = {name: (each._version, sample(each)) for name, each in weights.items()}
    modules = all_modules(engine.objects.values())
    looked_up = {id(each.weight) for each in modules if getattr(each, "max_norm", None)}
    refusing = register_optimizer_step_pre_hook(_refuse_step)
    try:
        engine.process(aside, aside.batch)
        first.look()
    finally:
        refusing.remove()
        first.close()
        assert aside.control.moments is not None
        aside.control.moments.close()
    for name, each in weights.items():
        if id(each) not in looked_up and before[name] != (each._version, sample(each)):
            raise RuntimeError(
                f"ReplayCheck: the process function writes {name} itself, so that the second pass "
                "would begin with other weights; do it in a function of Events.STEP_COMPLETED"
            )
    if first.updates - {update} or first.steps > 1:
        raise RuntimeError(
            "ReplayCheck: the process function makes several steps in one iteration, and those "
            "after the first would begin with other weights; let it make one, or leave "
            "ReplayCheck out"
        )
    acting = [
        event
        for event, count in aside.counts.items()
        if event not in Events and count != fired.get(event) and _has_acting(engine, event)
    ]
    if acting:
        raise RuntimeError(
            f"ReplayCheck: the process function fires {acting[0]!r}, and what its handlers do is "
            "done in the second pass alone. If they only look, attach them by "
            "engine.on(..., stage=Stage.REPORT)"
        )
    return first.marks


def _aside(state: State[Any, Any], first: Any) -> State[Any, Any]:
    """A state for the pass that does not count: what is done to it is not done to the run's."""
    metrics = LatestMetrics()
    metrics.load_state_dict(state.metrics.state_dict())
    metrics.iteration, metrics.clock = state.metrics.iteration, state.metrics.clock
    moments, step, memory = Moments(Signals()), state.step_under_way, state.memory
    moments.add_check(Events.BACKWARD_COMPLETED, first.skip)
    known: dict[int, Any] = {id(each): each for each in state.engine.objects.values()}
    # By clones: a deep copy of a view would copy all of a data set.
    memo = known | {id(e): _clone(e) for _, e in leaves(state.batch) if isinstance(e, Tensor)}
    return replace(
        state,
        batch=deepcopy(state.batch, memo),
        metrics=metrics,
        control=replace(state.control, moments=moments, saves=[], counts=copy(state.counts)),
        step_under_way=replace(
            step,
            check=first,
            met=set(step.met),
            windows={k: replace(w, closures=[*w.closures]) for k, w in step.windows.items()},
        ),
        memory=replace(
            memory,
            saved=RecalledCopies(memory.saved, known),
            unsaved=RecalledCopies(memory.unsaved, known),
            loaded=dict(memory.loaded),
            made=dict(memory.made),
        ),
    )


class RecalledCopies(dict[str, Any]):
    """Memories, of which each one is copied when a pass recalls it; things known are shared."""

    def __init__(self, memories: Mapping[str, Any], known: Mapping[int, Any]) -> None:
        super().__init__(memories)
        self._known, self._copied = known, set[str]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._copied:
            self._copied.add(name)
            self[name] = deepcopy(super().__getitem__(name), dict(self._known))
        return super().__getitem__(name)


def _clone(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


@contextmanager
def _taken_back(
    state: State[Any, Any], update: Update, weights: Weights
) -> Generator[None, None, None]:
    """Within a `with` block, compute a pass without a step; afterwards all is as before."""
    changes, engine = Changes(state), state.engine
    # Also modules that no checkpoint holds, such as the wrapper that ranks have around a model.
    others = [*changes.unsaved.values(), *filter(None, [update.scaler, update.model])]
    others += reached([engine.process], lambda kind: issubclass(kind, Module)).values()
    modules = all_modules([*engine.objects.values(), *others])
    own = (*weights.values(), *(each for module in modules for each in module.parameters(False)))
    gradients = [(each, each.grad) for each in {id(each): each for each in own}.values()]
    try:
        for each, gradient in gradients:  # the pass adds to a copy: an open window's stays as it is
            each.grad = None if gradient is None else gradient.clone()
        data = state.control.data
        with changes.taken_back(), as_before(engine, data, *others, has_steps=False):
            yield
    finally:
        for each, gradient in gradients:
            each.grad = gradient


def _refuse_step(optimizer: Any, *_: object) -> None:
    raise RuntimeError(
        f"ReplayCheck: the process function calls step() of {type(optimizer).__name__} itself, "
        "which cannot be done twice; make the steps by an Update, or leave ReplayCheck out"
    )


def _has_acting(engine: Engine[Any, Any], event: Any) -> bool:
    found: Iterable[Any] = engine.signal(event).receivers.values()
    return any(getattr(each, "stage", Stage.ACT) is not Stage.REPORT for each in found)


def _updates(engine: Engine[Any, Any]) -> list[Update]:
    """The updates of an engine, and those that its process function can reach."""
    own = [each for each in engine.handlers.values() if isinstance(each, Update)]
    own += reached([engine.process], lambda kind: issubclass(kind, Update)).values()
    return [*{id(each): each for each in own}.values()]


def _named_weights(engine: Engine[Any, Any], update: Update) -> Weights:
    """By name: the weights of the engine's modules, and others that its update trains."""
    found: Weights = {}
    models = {n: each for n, each in engine.objects.items() if isinstance(each, Module)}
    for prefix, model in models.items():
        own = dict(model.named_parameters())
        for name, plain in plain_names(model, own).items():
            found[f"{prefix}." * (len(models) > 1) + plain] = own[name]
    known = set(map(id, found.values()))
    others = [each for each in parameters_of(update.optimizer) if id(each) not in known]
    return found | {f"parameter {number} of the optimizer": e for number, e in enumerate(others)}


def _hindrance(engine: Engine[Any, Any]) -> str:
    """Why the second pass of a step would not be exact; or empty."""
    updates = _updates(engine)
    home = getattr(engine.process, "__self__", engine.process)
    room = str(getattr(home, "__module__", ""))
    if engine.around is not None or ".bridges." in room:
        return (
            "another handler or a bridge calls the process function of this engine, with hooks "
            "that would be called twice; leave ReplayCheck out"
        )
    if len(updates) != 1:
        return (
            f"this engine has {len(updates) or 'no'} Update{'s' * (len(updates) != 1)}, where a "
            "second pass is exact only before the one step of an iteration: make it by an "
            "Update, `update(state, loss)`, or leave ReplayCheck out"
        )
    modules = all_modules([*engine.objects.values(), updates[0].model])
    if updates[0].compiled is not None or any(map(is_compiled, modules)):
        return (
            "a compiled step may write over what the pass before has made; leave compile= out, or "
            "ReplayCheck"
        )
    views = [e for e in modules if isinstance(e, DistributedDataParallel)]
    if updates[0].accumulate > 1 and (
        fully_sharded(modules) or any(each.gradient_as_bucket_view for each in views)
    ):
        return (
            "the gradients of an open accumulation window are in buffers of fully_shard, or of "
            "gradient_as_bucket_view=True, and cannot be put back; leave accumulate= out, or "
            "ReplayCheck"
        )
    taken = reached([engine.process], lambda kind: hasattr(kind, "__next__"))
    if names := [n for n, each in taken.items() if not isinstance(each, IOBase)]:
        return (
            f"the process function may take data from {names[0]}, an iterator that gives each item "
            "once; give what it needs with the batch, or leave ReplayCheck out"
        )
    return ""
