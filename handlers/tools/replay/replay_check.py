"""A step's forward and backward pass, computed twice and compared bit by bit before it counts."""

from __future__ import annotations

import logging
import platform
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from io import IOBase
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ....engine import Engine, Events, Moments, Stage, State, ranks
from ....engine.changes import Changes, reached
from ....engine.modules import all_modules, fully_sharded, is_compiled, local, parameters_of
from ....engine.signals import Signals
from ....engine.state import LatestMetrics
from ....engine.update import Update
from ..prove import difference_of, leaves, mark_of, weights_by_name
from ..search import as_before

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class ReplayCheck:
    """Compute a step's forward and backward pass twice, and compare the bits, before it counts.

    A chip that computes wrong without a word, or a kernel that is not deterministic, gives other
    bits the second time: of the loss, or of a gradient as this rank has computed it, before ranks
    average. The optimizer has not moved by then. A run with this handler is the same run to the
    last bit as one without: random generators, weights, buffers, modes, a scaler, what the process
    function remembers, and the script's own values are put back between the two passes. Events
    that the process function fires itself call their functions in the second pass alone.

    The first check, in iteration `every`, finds a kernel that is not deterministic, and names the
    first gradient that it changes. A difference that comes later is a reason to examine the
    machine. Other iterations cost nothing; a checked one costs a second pass, checksums of all
    gradients, and a copy of the weights in the memory of the CPU.

    Args:
        every: Check one iteration of so many; never the first, in which libraries choose kernels
            and `DistributedDataParallel` chooses its buckets.
        on_difference: `"raise"` to end the run; `"warn"` to tell of it, and to go on with the
            second pass.

    Raises:
        RuntimeError: The passes differ; it names rank, host and the first tensor. Or the process
            function does in the first pass what cannot be taken back.
        ValueError: A second pass cannot be exact for such a run, or an argument is wrong.

    >>> ReplayCheck(every=0)
    Traceback (most recent call last):
    ...
    ValueError: ReplayCheck(every=0): needs a number of iterations, from 1
    """

    every: int = 1000
    _: KW_ONLY
    on_difference: Literal["raise", "warn"] = "raise"

    def __post_init__(self) -> None:
        every, way = self.every, self.on_difference
        if type(every) is not int or every < 1:
            raise ValueError(f"ReplayCheck(every={every!r}): needs a number of iterations, from 1")
        if way not in ("raise", "warn"):
            raise ValueError(f"ReplayCheck(on_difference={way!r}): needs 'raise' or 'warn'")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Refuse what cannot be computed twice; compute the first pass before the other one."""
        when = Events.ITERATION_STARTED(every=self.every, after=1)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.begin)
        engine.on(when, stage=Stage.REPORT)(self.check)
        engine.on(Events.CLOSED, stage=Stage.MEASURE)(self.close)

    def begin(self, state: State[Any, Any]) -> None:
        """Refuse a run whose second pass would not be exact."""
        if why := _hindrance(state.engine):
            raise ValueError(f"ReplayCheck computes a step twice, and {why}, or ReplayCheck out")

    def check(self, state: State[Any, Any]) -> None:
        """Compute the first pass, take it back, and compare the pass that follows with it."""
        (update,) = _updates(state.engine)
        weights = _named_weights(state.engine, update)
        with _taken_back(state, update):
            marks = _first_pass(state, update, weights)
        moments, step = state.control.moments, state.step_under_way
        second: Any = Marks(weights, step.check)
        step.check = second  # an update tells it the loss
        calls = Events.BACKWARD_COMPLETED, Events.ITERATION_COMPLETED
        assert moments is not None

        def compare(state: State[Any, Any]) -> None:
            for event in calls:  # whichever comes first: a window may stay open
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
            (update,) = _updates(state.engine)
            device = str(parameters_of(update.optimizer)[0].device)
            if device.startswith("cuda"):
                device += f" ({torch.cuda.get_device_name(device)})"
            own = f"rank {ranks.rank()} on {platform.node()}, {device}, in {found['text']}"
        if not (told := [each for each in ranks.gathered(own) if each is not None]):
            return
        message = (
            f"iteration {state.iteration} was computed twice from the same weights, batch and "
            f"random numbers, and the bits differ: {'; '.join(told)}. If this is so in each check, "
            "a kernel is not deterministic: torch.use_deterministic_algorithms(True) names it. If "
            "not, the device may compute wrong: examine it, and go on without it from the last "
            "checkpoint"
        )
        if self.on_difference == "raise":
            raise RuntimeError(f"{message}. The optimizer has not made this step")
        if ranks.rank() == 0:
            logger.warning("%s", message)


class Marks:
    """The marks of what one pass computes, by name, in the order in which it came.

    An update tells it each loss, in the place of the check of gradients, which hears of it too.
    """

    def __init__(self, weights: Mapping[str, Tensor], inner: Any = None) -> None:
        self.marks: dict[str, str] = {}
        self.updates: set[Update] = set()
        """The updates that got a loss."""
        self.steps: int = 0
        """How often gradients were whole."""
        self.inner: Any = inner
        self._weights = weights
        wanted = {name: each for name, each in weights.items() if each.requires_grad}
        self._hooks = [(each, each._backward_hooks) for each in wanted.values()]
        for name, each in wanted.items():
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
        """Note the gradients of which no hook hears, such as those of `fully_shard`."""
        for name, each in self._weights.items():
            if (place := f"the gradient of {name}") not in self.marks and each.grad is not None:
                self._note(place, each.grad)

    def skip(self, state: State[Any, Any]) -> None:
        """Look at the whole gradients of a pass that does not count, and make no step."""
        self.steps += 1
        self.look()
        state.skip_step()

    def close(self) -> None:
        """Leave no hook behind, nor the table of hooks, which each backward pass would read."""
        for each, before in self._hooks:
            each._backward_hooks = before
        self._hooks.clear()

    def _note(self, name: str, value: Tensor) -> None:
        place, number = name, 1
        while place in self.marks:  # a further part of the micro-batch
            place, number = f"{name}, part {number + 1}", number + 1
        self.marks[place] = mark_of(local(value))


class RecalledCopies(dict[str, Any]):
    """Memories of a run, each of which is copied when it is recalled; what is known is shared."""

    def __init__(self, memories: Mapping[str, Any], known: Mapping[int, Any]) -> None:
        super().__init__(memories)
        self._known, self._copied = known, set[str]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._copied:
            self._copied.add(name)
            self[name] = deepcopy(super().__getitem__(name), dict(self._known))
        return super().__getitem__(name)


@contextmanager
def _taken_back(state: State[Any, Any], update: Update) -> Generator[None, None, None]:
    """Within a `with` block, compute a pass without a step; afterwards all is as before."""
    changes, engine = Changes(state), state.engine
    # An update knows the wrapper of a model, which notes whether ranks share buffers next time.
    others = [*changes.unsaved.values(), *filter(None, [update.scaler, update.model])]
    modules = all_modules([*engine.objects.values(), *others])
    own = [each for module in modules for each in module.parameters(recurse=False)]
    own += parameters_of(update.optimizer)
    gradients = [(each, each.grad) for each in {id(each): each for each in own}.values()]
    try:
        for each, gradient in gradients:  # the pass adds to a copy of an open window's
            each.grad = None if gradient is None else gradient.clone()
        data = state.control.data
        with changes.taken_back(), as_before(engine, data, *others, has_steps=False):
            yield
    finally:
        for each, gradient in gradients:
            each.grad = gradient


def _first_pass(
    state: State[Any, Any], update: Update, weights: Mapping[str, Tensor]
) -> dict[str, str]:
    """Call the process function with copies of the state and the batch; what it computes."""
    first, moments = Marks(weights), Moments(Signals())
    moments.add_check(Events.BACKWARD_COMPLETED, first.skip)
    refusing = register_optimizer_step_pre_hook(_refuse_step)
    try:
        aside = _aside(state, first, moments)
        state.engine.process(aside, aside.batch)
        first.look()
    finally:
        refusing.remove()
        first.close()
        moments.close()
    if first.updates - {update} or first.steps > 1:
        raise RuntimeError(
            "ReplayCheck: the process function makes several steps in one iteration, and those "
            "after the first begin with other weights; let it make one, or leave ReplayCheck out"
        )
    return first.marks


def _refuse_step(optimizer: Any, *_: object) -> None:
    raise RuntimeError(
        f"ReplayCheck: the process function calls step() of {type(optimizer).__name__} itself, "
        "which cannot be taken back; make the steps by an Update, or leave ReplayCheck out"
    )


def _aside(state: State[Any, Any], first: Any, moments: Moments) -> State[Any, Any]:
    """A state for the pass that does not count: what is done to it is not done to the run's."""
    metrics, step, memory = LatestMetrics(), state.step_under_way, state.memory
    metrics.load_state_dict(state.metrics.state_dict())
    metrics.iteration, metrics.clock = state.metrics.iteration, state.metrics.clock
    known: dict[int, Any] = {id(each): each for each in state.engine.objects.values()}
    tensors = [each for _, each in leaves(state.batch) if isinstance(each, Tensor)]
    # By clones: a deep copy of a view would copy all of a data set.
    clones = {id(e): e.detach().clone().requires_grad_(e.requires_grad) for e in tensors}
    windows = {k: replace(w, closures=[*w.closures]) for k, w in step.windows.items()}
    return replace(
        state,
        batch=deepcopy(state.batch, known | clones),
        metrics=metrics,
        control=replace(state.control, moments=moments, saves=[], counts=copy(state.counts)),
        step_under_way=replace(step, check=first, met=set(step.met), windows=windows),
        memory=replace(
            memory,
            saved=RecalledCopies(memory.saved, known),
            unsaved=RecalledCopies(memory.unsaved, known),
            loaded=dict(memory.loaded),
            made=dict(memory.made),
        ),
    )


def _updates(engine: Engine[Any, Any]) -> list[Update]:
    """The updates of an engine, and those that its process function can reach."""
    own = engine.find(Update)
    own += reached([engine.process], lambda kind: issubclass(kind, Update)).values()
    return [*{id(each): each for each in own}.values()]


def _named_weights(engine: Engine[Any, Any], update: Update) -> dict[str, Tensor]:
    """By name: the weights of the engine's modules, and others that its update trains."""
    found = weights_by_name(engine.objects)
    known = set(map(id, found.values()))
    others = [each for each in parameters_of(update.optimizer) if id(each) not in known]
    return found | {f"parameter {number} of the optimizer": e for number, e in enumerate(others)}


def _hindrance(engine: Engine[Any, Any]) -> str:
    """Why the second pass of a step would not be exact, and what to leave; or empty."""
    home = getattr(engine.process, "__self__", engine.process)
    if engine.around is not None or ".bridges." in str(getattr(home, "__module__", "")):
        return "another handler or a bridge calls the process function: leave that"
    if len(updates := _updates(engine)) != 1:
        return (
            f"this engine has {len(updates) or 'no'} Update{'s' * (len(updates) != 1)}, where a "
            "second pass is exact before one step of an iteration: leave all but one Update(...)"
        )
    update, modules = updates[0], all_modules([*engine.objects.values(), updates[0].model])
    if update.compiled is not None or any(map(is_compiled, modules)):
        return "a compiled step may write over what the pass before has made: leave compile="
    is_view = any(getattr(each, "gradient_as_bucket_view", False) for each in modules)
    if update.accumulate > 1 and (is_view or fully_sharded(modules)):
        return (
            "fully_shard, or gradient_as_bucket_view=True, keeps the gradients of an open "
            "accumulation window where they cannot be put back: leave accumulate="
        )
    taken = reached([engine.process], lambda kind: hasattr(kind, "__next__"))
    if names := [name for name, each in taken.items() if not isinstance(each, IOBase)]:
        return (
            f"the process function may read {names[0]}, an iterator that gives each item once: "
            "give what it needs with the batch, and leave it"
        )
    return ""
