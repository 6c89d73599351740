"""The compiled step of an optimizer, and compiled functions of gradients such as clipping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .options import Function, compiled, compiled_to_keep, replays

AT_EACH_STEP = 3
"""So many steps in a row with other settings show that a schedule moves them at each step."""


class CompiledStep:
    """The step of an optimizer as torch.compile makes it: `step()` in place of `optimizer.step()`.

    A rate that is a number would be compiled into the graph, so a graph would be made for each
    rate of a schedule. During the step the rate of each group is a tensor; before and after it,
    where schedules, checkpoints and logs see it, it is the number.
    """

    def __init__(self, optimizer: Optimizer, options: Mapping[str, Any]) -> None:
        """Prepare the step; torch compiles it when it is first taken."""
        self.optimizer = optimizer
        # Torch itself breaks the graph where it enters an optimizer's step.
        self.options: dict[str, Any] = {**options, "fullgraph": False}
        self.is_replayed: bool = replays(options)
        """True if torch replays CUDA graphs in a step, its forward pass included."""
        self._plain: Callable[..., Any] | None = None
        self._compiled: Callable[..., Any] | None = None
        self._others: dict[Callable[..., Any], Callable[..., Any]] = {}
        self._rates: dict[int, Tensor] = {}
        self._settings: list[dict[str, Any]] = []
        self._changes = 0

    def begin(self) -> None:
        """Let CUDA graphs overwrite what they made in the step before.

        Without this, torch takes each call of a compiled function for a new step: clipping would
        overwrite the gradients that it is to clip, and a micro-batch those of the one before.
        """
        if self.is_replayed:
            torch.compiler.cudagraph_mark_step_begin()

    def step(self) -> None:
        """Take the step.

        One with a rate of 0, such as the first one of a warm-up, is not compiled: what torch makes
        of its optimizers divides by the rate, and a gradient of 0 would make weights NaN.
        """
        optimizer, groups = self.optimizer, self.optimizer.param_groups
        self._watch(groups)
        is_by_zero = any(map(_divides_by_zero, groups))
        names = ("capturable",) if is_by_zero else ("lr", "foreach")
        kept = [{name: group[name] for name in names if name in group} for group in groups]
        try:
            if is_by_zero:
                for group in groups:
                    group.update({"capturable": False} if "capturable" in group else {})
                optimizer.step()
                return
            if self._plain != optimizer.step:  # a scheduler of torch's replaces it
                self._plain = optimizer.step
                self._compiled = compiled(self._plain, self.options)
            assert self._compiled is not None
            for number, group in enumerate(groups):
                if isinstance(rate := group.get("lr"), float | int):
                    group["lr"] = self._as_tensor(number, rate)
                    # Adam with foreach=True refuses such a rate; where torch chooses, it does not.
                    if group.get("foreach") and group.get("capturable") is False:
                        group["foreach"] = None
            self._compiled()
        finally:
            for group, before in zip(groups, kept, strict=True):
                group.update(before)

    def of(self, function: Function) -> Function:
        """A function of gradients, such as clipping, compiled in the same way."""
        made: Any = self._others.get(function)
        if made is None:
            made = self._others[function] = compiled_to_keep(function, self.options)
        return made  # type: ignore[no-any-return]

    def _as_tensor(self, number: int, rate: float) -> Tensor:
        """The rate of a group, as exact as the number where the device allows it."""
        if number not in self._rates:
            parameters = self.optimizer.param_groups[number]["params"]
            place = parameters[0].device if parameters else torch.device("cpu")
            kind = torch.float32 if place.type == "mps" else torch.float64
            self._rates[number] = torch.empty((), dtype=kind, device=place)
        return self._rates[number].fill_(rate)

    def _watch(self, groups: list[dict[str, Any]]) -> None:
        """Refuse a schedule that moves other settings at each step."""
        settings = [
            {name: group[name] for name in group if _is_setting(group, name)} for group in groups
        ]
        before, self._settings = self._settings, settings
        if settings == before or len(settings) != len(before):
            self._changes = 0
            return
        self._changes += 1
        if self._changes == AT_EACH_STEP:
            pairs = list(zip(before, settings, strict=True))
            moved = sorted({n for old, new in pairs for n in new if old.get(n) != new[n]})
            raise ValueError(
                f"compile=: a schedule moves {', '.join(map(repr, moved))} of the optimizer at "
                "each step, and the step would be compiled for each value; only 'lr' may move so. "
                "Leave compile= out, or let the schedule leave the others alone: "
                "OneCycleLR(..., cycle_momentum=False)"
            )


def _divides_by_zero(group: dict[str, Any]) -> bool:
    """True for an optimizer of the kind of Adam, with a rate of 0."""
    return "capturable" in group and isinstance(rate := group.get("lr"), float | int) and rate == 0


def _is_setting(group: dict[str, Any], name: str) -> bool:
    """True for what torch compiles into the step: numbers, and pairs of them, but the rate."""
    return name != "lr" and isinstance(group[name], float | tuple)
