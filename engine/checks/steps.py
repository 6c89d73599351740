"""Optimizer steps that a run makes but does not announce, so that handlers wait in vain."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import ref

from .. import modules
from ..changes import attributes_of, mentions, reached, script_functions
from ..events import EventEnum, Events
from ..explain import explain, warn
from ..modules import parameters_of
from ..signals import label
from ..state import under_way
from .checked import ENDS, After, Check, Checked, unwatch_steps, watch_steps

logger: logging.Logger = logging.getLogger("camshaft")

LATEST = 100
"""The number of iterations after the first optimizer step until a step must be announced.

It is large, because the main one of several optimizers may step more rarely than the others.
"""
OF_WEIGHTS = {"torch", "torch.nn.parameter"}
STEP, SKIPPED, READY = Events.STEP_COMPLETED, Events.STEP_SKIPPED, Events.GRADIENTS_READY
GRADIENTS = (Events.BACKWARD_COMPLETED, READY)
CALLED = (
    (
        *("torch.optim.lr_scheduler", "LRScheduler", "step", "last_epoch"),
        "the rate stays as it is; in its place, engine.add(LRSchedule(...)) steps and saves it",
    ),
    (
        *("torch.optim.swa_utils", "AveragedModel", "update_parameters", "n_averaged"),
        "its weights stay as they are; in its place, engine.add(EMA(0.999)) updates and saves them",
    ),
)
"""Classes of torch that a script has to call: the method, what it counts, and what to write."""
TWO_LINES = """

    update = Update(optimizer)  # once, before the engine is made
    update(state, loss)         # instead of zero_grad(), backward() and optimizer.step()
"""
ONE_LINE = """

    state.fire(Events.STEP_COMPLETED)  # after optimizer.step()
"""


def check_steps(run: Checked) -> Check:
    """End a run in which handlers wait for steps that the process function does not announce.

    A run in which no optimizer stepped only gets a warning: its first epoch may train nothing.
    """
    steps, moment = _Steps(run), None
    try:
        if steps.waiting((*GRADIENTS, STEP)):
            watch_steps(steps.note)
            while not (run.ended(moment) or steps.has_come(READY)):  # else an update makes them
                moment = yield After(Events.ITERATION_COMPLETED), *ENDS
            unwatch_steps(steps.note)
        if not run.ended(moment):
            yield from run.first_epoch()
        steps.refuse_unannounced()
        if run.state.iteration > steps.began:  # not if a handler stopped it before its first batch
            steps.warn_if_idle()
    except RuntimeError as error:
        explain(error, f"in the process function {label(run.process)}", run.state)
        raise
    finally:
        unwatch_steps(steps.note)


class _Steps:
    """What a run has announced since it began, and who waits for it."""

    def __init__(self, run: Checked) -> None:
        self.run, self.state, self.counts = run, run.state, run.state.counts
        self.began: int = run.state.iteration
        self.updates: dict[str, EventEnum] = {n: each.event for n, each in run.updates.items()}
        """The events that the attached updates announce, by the names of the updates."""
        updates = run.updates.values()
        self.optimizers = {
            id(one) for each in updates for one in modules.optimizers_in(each.optimizer)
        }
        """If there are any, steps of other optimizers do not count, such as a critic's."""
        events = {*GRADIENTS, STEP, SKIPPED, *self.updates.values()}
        self.before = {event: self.counts[event] for event in events - {STEP}}
        self.before[STEP] = self.state.step
        self.written = {name: _written(each) for name, each in run.objects.items()}
        self.first = 0
        """The iteration of the first optimizer step that no update made; 0 before it."""

    def note(self, optimizer: object) -> None:
        """Called after each step of any optimizer of the process."""
        state, is_own = self.state, not self.optimizers or id(optimizer) in self.optimizers
        if is_own and under_way.get() is state and not self.has_come(READY):
            self.first = self.first or state.iteration
            if state.iteration >= self.first + LATEST and not state.step_under_way.windows:
                self.refuse_unannounced()  # where it is made

    def refuse_unannounced(self) -> None:
        """Raise an error if steps are made that are not announced."""
        if self.has_come(SKIPPED):  # by an update, whose next steps will be announced
            return
        gradients_came, step_came = self.has_come(READY), self.has_come(STEP)
        for_gradients = [] if gradients_came else self.waiting(GRADIENTS)
        for_steps = [] if step_came else self.waiting((STEP,))
        if step_came and for_gradients:
            raise RuntimeError(
                f"{_wait(for_gradients)} for the gradients of a step, which only an Update "
                "announces. The process function steps its optimizer itself and fires "
                "STEP_COMPLETED, which comes too late to look at gradients or to change them. Make "
                f"the steps by an Update:{TWO_LINES}"
            )
        if gradients_came and for_steps and STEP not in self.updates.values():
            others = ", ".join(sorted(map(repr, {*self.updates.values()})))
            raise RuntimeError(
                f"{_wait(for_steps)} for Events.STEP_COMPLETED, and the updates of this run "
                f"announce their steps as {others or 'events of your own'}: choose one of these "
                "events by when=, or leave event= out of the Update of the main optimizer"
            )
        if self.first and not (gradients_came or step_came) and (for_gradients or for_steps):
            names = [*dict.fromkeys([*for_gradients, *for_steps])]
            message = (
                f"{_wait(names)} for optimizer steps, which never come: the process function steps "
                f"since iteration {self.first}, and announces no step. Make the steps by an Update:"
                f"{TWO_LINES}"
            )
            if for_steps:
                whom = _listed(for_steps)
                message += f"\nOr announce each step, which is enough for {whom}:{ONE_LINE}"
            raise RuntimeError(message)

    def warn_if_idle(self) -> None:
        """Warn of a first epoch without steps; fail if `max_steps` is the only limit."""
        state = self.state
        has_steps = any(map(self.has_come, self.before))
        counts = self.has_come(STEP) or self.has_come(SKIPPED)
        if not counts and state.max_epochs is None and state.max_iterations is None:
            raise RuntimeError(
                f"max_steps={state.max_steps} is the only limit, and the first epoch made no "
                "optimizer step: call an Update in the process function, or "
                "state.fire(Events.STEP_COMPLETED) where it makes its own; or give max_epochs= too"
            )
        idle = [name for name, event in self.updates.items() if not self.has_come(event)]
        if idle and not self.has_come(SKIPPED):
            logger.warning(
                "%s made no step in the first epoch: it got no loss, or was not called. Let the "
                "loss function return the loss; a process function of your own calls it: "
                "`if state.training: update(state, loss)`",
                _listed(idle),
            )
        elif not has_steps and (unchanged := self.unchanged()):
            warn(
                "the process function returns a loss that nothing trains with: the first epoch "
                f"changed no weight of {_listed(unchanged)}. Make an Update(optimizer), and call "
                "it in the process function: `if state.training: update(state, loss)`"
            )
        elif not has_steps and (waiting := self.waiting((*GRADIENTS, STEP))):
            logger.warning(
                "the first epoch made no optimizer step, and %s for one; where the process "
                "function changes weights, let an Update do it: `update(state, loss)`",
                _wait(waiting),
            )

    def unchanged(self) -> list[str]:
        """The optimizers with unwritten weights, if the last output has a graph; else none."""
        output = self.state.output
        values: Any = output.values() if isinstance(output, Mapping) else output
        values = values if isinstance(output, Mapping | list | tuple) else [output]
        if not any(getattr(each, "requires_grad", False) is True for each in values):
            return []
        things, before = self.run.objects.items(), self.written
        return [f"objects[{n!r}]" for n, each in things if before.get(n) == _written(each) != []]

    def waiting(self, events: Iterable[EventEnum]) -> list[str]:
        """The names of handlers and limits that wait for one of these events."""
        found: dict[str, None] = {}
        for event in events:
            if event in self.run.moments.signals:
                for each in self.run.moments.signals[event].receivers_for(self.state):
                    found[getattr(each, "handler", "") or label(each)] = None
            if event is STEP and self.state.max_steps is not None:
                found[f"max_steps={self.state.max_steps}"] = None
        return list(found)

    def has_come(self, event: EventEnum) -> bool:
        """True if the event was announced since this run began or was resumed."""
        return self.count(event) > self.before[event]

    def count(self, event: EventEnum) -> int:
        return self.state.step if event is STEP else self.counts[event]


def check_limit(run: Checked) -> Check:
    """Warn of a run that has ended a few steps after its limit."""
    state, before, most = run.state, run.state.step, run.state.max_steps
    yield (Events.COMPLETED,)
    if most is not None and most == state.max_steps and before < most < state.step:
        logger.warning(
            "max_steps=%d, and the run made %d steps: the limit is looked at after each "
            "iteration, and an iteration of this run makes several steps. Write max_steps=%d, "
            "for which schedules are built too",
            *(state.max_steps, state.step, state.step),
        )


def check_forgotten(run: Checked) -> list[Check]:
    """Warn of schedulers and averages of torch among the objects that no function ever calls."""
    checks = list[Check]()
    for home, kind_name, method, count, advice in CALLED:
        kind: Any = getattr(sys.modules.get(home), kind_name, ())
        found = dict[str, Any]()
        for name, each in run.objects.items():  # with no comprehension, which would be a call
            if isinstance(each, kind) and hasattr(each, count):
                found[name] = each
        # A resumed run may be between two calls.
        if found and not run.is_bridge and run.state.is_new:
            checks.append(_check_called(run, found, kind, method, count, advice))
    return checks


def _check_called(
    run: Checked, found: Mapping[str, Any], kind: type, method: str, count: str, advice: str
) -> Check:
    """Warn of those whose count stays as it is, unless a function or a handler may call them."""
    before = {name: int(getattr(each, count)) for name, each in found.items()}
    functions = script_functions(run.process, run.moments.signals)
    if mentions(functions, method):
        yield (Events.COMPLETED,)  # they may call it now and then
    else:
        yield from run.first_epoch()
    others = [*reached(functions, lambda other: issubclass(other, kind)).values()]
    of_handlers = [attributes_of(each) for each in run.handlers.values()]
    others += [each for own in of_handlers for each in own.values()]
    names = [own.get("object") for own in of_handlers]
    # The latter is torch's note at an optimizer that has a scheduler: no event tells of its steps.
    has_trained = run.state.step or any(hasattr(e, "_opt_called") for e in run.optimizers.values())
    for name, each in found.items():
        is_others = name in names or any(own is each for own in others)
        if int(getattr(each, count)) == before[name] and not is_others and has_trained:
            warn(f"nothing has called {method} of the {kind.__name__} objects[{name!r}]: {advice}")


def check_saves(run: Checked) -> Check:
    """Warn of a save between the backward passes of a step that the process function makes."""
    owned = {id(one) for e in run.updates.values() for one in modules.optimizers_in(e.optimizer)}
    own = {id(each): name for name, each in run.optimizers.items() if id(each) not in owned}
    state, stepped, left = run.state, dict[int, int](), dict[int, list[Any]]()
    if not own or run.is_bridge or not state.engine.has_handlers(Events.SAVING):
        return

    def note(optimizer: Any) -> None:
        if (key := id(optimizer)) not in own or under_way.get() is not state:
            return
        stepped[key] = state.iteration
        kept = [some for p, gradient, some in left.pop(key, ()) if p.grad is gradient() is not None]
        if any(map(bool, kept)):
            warn(
                f"{own.pop(key)} makes one step for several iterations, and a checkpoint between "
                "them does not hold their gradients, so that a resumed run is another run. Let an "
                "Update make the steps: Update(optimizer, accumulate=n). Or save behind each, "
                "when=Events.STEP_COMPLETED: state.fire(Events.STEP_COMPLETED) after the step"
            )

    watch_steps(note)
    try:
        while (yield (Events.SAVING,)):
            for each in run.optimizers.values():
                if id(each) in own and stepped.get(id(each)) != state.iteration:
                    weights = parameters_of(each)
                    plain = [p for p in weights if type(p.grad).__module__ == "torch"]  # no shards
                    # Nobody waits for a device here: the step reads it, if the gradient is there.
                    left[id(each)] = [(p, ref(p.grad), (p.grad != 0).any()) for p in plain]
    finally:
        unwatch_steps(note)


def check_windows(run: Checked) -> Check:
    """Warn of windows longer than an epoch, and of several updates that count the run's steps."""
    yield from run.first_epoch()
    state = run.state
    batches, is_trial = state.epoch_length, state.control.max_batches is not None
    for name, each in run.updates.items():
        if batches and each.accumulate > batches and not is_trial:
            logger.warning(
                "%s(accumulate=%d) is more than the %d batches of an epoch, whose end closes "
                "each window: an epoch makes one step. For windows over several passes, give "
                "run(..., epoch_length=)",
                *(name, each.accumulate, batches),
            )
    clocks = sum(each.event is Events.STEP_COMPLETED for each in state.step_under_way.met)
    if clocks > 1:
        warn(
            f"the steps of {clocks} Updates count as steps of the run: state.step is "
            f"{state.step} after {state.iteration} iterations, and schedules and limits go by "
            "this sum. Give each Update but the main one an event of its own: "
            "Update(optimizer, event=MyEvents.CRITIC_UPDATED)"
        )


def _written(optimizer: Any) -> list[int]:
    """How often each trainable weight was written, and the size of the optimizer's state.

    Empty for other objects, and for an optimizer of sharded weights.
    """
    weights: list[Any] = parameters_of(optimizer) if hasattr(optimizer, "param_groups") else []
    if not weights or {type(each).__module__ for each in weights} - OF_WEIGHTS:
        return []
    written = [each._version for each in weights if each.requires_grad]
    return [*written, len(getattr(optimizer, "state", ()))]  # a class of its own may have none


def _wait(names: list[str]) -> str:
    return f"{_listed(names)} wait{'s' * (len(names) == 1)}"


def _listed(names: list[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
