"""Layers that are frozen for a part of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from dataclasses import field as field_of
from typing import Any, ClassVar

from torch.nn import Module, Parameter

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger, few
from ...engine.modules import unwrap
from ..common import module_of
from .parameter_groups import Pattern, group_name, matches, spelled


@dataclass(frozen=True, eq=False)
class Freeze:
    """Freeze a part of the model while it trains, until a trigger thaws it.

    Frozen parameters have `requires_grad` False and no gradient, so torch's optimizers do not move
    them, not even by weight decay or momentum. Norms that keep running statistics, such as
    BatchNorm, are put into evaluation mode with them. Several `Freeze` handlers make a gradual
    unfreezing; a parameter that two of them match trains when both have thawed it. When the run is
    closed, all parameters and norms are set back as they were before it.

    The optimizer has to know the parameters from the start: make it before the model is frozen, or
    from `parameter_groups(..., frozen=True)`. `DistributedDataParallel` needs
    `find_unused_parameters=True`.

    Args:
        pattern: The parameters: a glob such as `"backbone.*"`, a compiled regular expression, or a
            function of name and parameter.
        when: When to freeze; by default from the start of the run.
        until: When to thaw; by default never.
        norms: False to let frozen norms update their running statistics.
        object: The model's name in `engine.objects`.

    Raises:
        ValueError: The pattern matches no parameter, or the engine has no such model; found when
            the run starts.

    >>> Freeze("backbone.*", until=Events.EPOCH_STARTED(at=3)).name
    'backbone'
    """

    pattern: Pattern
    _: KW_ONLY
    when: EventEnum | Trigger = Events.STARTED
    until: EventEnum | Trigger | None = None
    norms: bool = True
    object: str = "model"
    name: str = field_of(init=False)
    in_trials: ClassVar[bool] = True
    """It takes part in `find_lr` and `find_batch_size`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", group_name(self.pattern))

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Freeze and thaw by the triggers, before other handlers of the moment."""
        engine.on(Events.LOADING, stage=Stage.MEASURE)(self.look)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.take_up)
        if not self._is_from_the_start:
            engine.on(self.when, stage=Stage.MEASURE)(self.freeze)
        if self.until is not None:
            engine.on(self.until, stage=Stage.MEASURE)(self.thaw)
        engine.on(Events.SAVING, stage=Stage.MEASURE)(self.note)
        engine.on(Events.CLOSED)(self.give_back)

    def look(self, state: State[Any, Any]) -> None:
        """Find the parameters and norms, and note how they are before the run."""
        found = state.recall(self, Found, saved=False)
        model = unwrap(module_of(state.engine.objects, self.object, "Freeze"))
        for name, each in model.named_parameters():
            if matches(self.pattern, name, each):
                found.parameters[name] = each, each.requires_grad
        if not found.parameters:
            names = few((repr(name) for name, _ in model.named_parameters()), 8)
            given = spelled(self.pattern)
            raise ValueError(f"Freeze({given!r}) matches no parameter; there are {names}")
        if self.norms:
            norms = (m for name, m in _norms(model) if self._matches_norm(name, m))
            found.norms = [(module, module.training) for module in norms]

    def take_up(self, state: State[Any, Any]) -> None:
        """Freeze at the start of a run, or as it was when a resumed run was saved."""
        memory = state.recall(self, IsFrozen)
        if memory.frozen is None:
            memory.frozen = self._is_from_the_start
        self._apply(state)
        found = state.recall(self, Found, saved=False)
        found.is_applied = True
        for name, trains in state.recall(self.note, dict[str, bool]).items():
            if name in found.parameters:  # else this script's model has it no more
                found.parameters[name][0].requires_grad_(trains)

    def note(self, state: State[Any, Any]) -> None:
        """Note, before a save, what the script has frozen or thawed by itself."""
        otherwise = state.recall(self.note, dict[str, bool])
        otherwise.clear()
        for name, each, trains in self._parameters(state):
            if each.requires_grad != trains:
                otherwise[name] = each.requires_grad

    def freeze(self, state: State[Any, Any]) -> None:
        """Freeze now."""
        state.recall(self, IsFrozen).frozen = True
        self._apply(state)

    def thaw(self, state: State[Any, Any]) -> None:
        """Thaw now, except what another `Freeze` still holds."""
        state.recall(self, IsFrozen).frozen = False
        self._apply(state)

    def give_back(self, state: State[Any, Any]) -> None:
        """Set everything back as it was before the run."""
        found = state.recall(self, Found, saved=False)
        if found.is_applied:  # else the run was over when it began
            self.note(state)  # for a run that goes on with this state
        for parameter, trains in found.parameters.values():
            parameter.requires_grad_(trains)
        for module, training in found.norms:
            module.training = training

    def owned(self, state: State[Any, Any]) -> list[Parameter | Module]:
        """What it sets itself at each start, so that a resume need not put it back."""
        found = state.recall(self, Found, saved=False)
        return [
            *(each for each, _ in found.parameters.values()),
            *(each for each, _ in found.norms),
        ]

    @property
    def _is_from_the_start(self) -> bool:
        return Trigger.of(self.when) == Trigger.of(Events.STARTED)

    def _apply(self, state: State[Any, Any]) -> None:
        for _, parameter, trains in self._parameters(state):
            parameter.requires_grad_(trains)
            if not trains:
                parameter.grad = None
        resting = {id(module) for each in self._holding(state) for module, _ in each.norms}
        for module, training in state.recall(self, Found, saved=False).norms:
            module.training = training and id(module) not in resting

    def _parameters(self, state: State[Any, Any]) -> Iterator[tuple[str, Parameter, bool]]:
        """The matching parameters by name, and whether they train as far as each `Freeze` goes."""
        held = (p for found in self._holding(state) for p, _ in found.parameters.values())
        frozen = set(map(id, held))
        own = state.recall(self, Found, saved=False)
        for name, (parameter, trains) in own.parameters.items():
            yield name, parameter, trains and id(parameter) not in frozen

    @staticmethod
    def _holding(state: State[Any, Any]) -> list[Found]:
        """What each `Freeze` has found that is frozen now."""
        every = state.engine.find(Freeze)
        holding = (each for each in every if state.recall(each, IsFrozen).frozen)
        return [state.recall(each, Found, saved=False) for each in holding]

    def _matches_norm(self, name: str, norm: Module) -> bool:
        own = dict(norm.named_parameters(name, recurse=False)) or {f"{name}.weight": Parameter()}
        return any(matches(self.pattern, *each) for each in own.items())


@dataclass
class IsFrozen:
    """True while frozen; None before the run has begun."""

    frozen: bool | None = None


@dataclass
class Found:
    """The matching parameters and norms, and how they were before the run."""

    parameters: dict[str, tuple[Parameter, bool]] = field_of(default_factory=dict)
    norms: list[tuple[Module, bool]] = field_of(default_factory=list)
    is_applied: bool = False
    """True after STARTED."""


def _norms(model: Module) -> Iterator[tuple[str, Module]]:
    """The modules that keep running statistics, such as BatchNorm."""
    for name, module in model.named_modules():
        if getattr(module, "running_mean", None) is not None:
            yield name, module
