"""An optimizer's step, and what is done to gradients before it, recorded and launched again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .gradients import Gradients
from .recorder import CUDA_GRAPHS, MANY, WARMING, Recorder, recorder_of
from .told import explained_recording

logger = logging.getLogger("camshaft")
PATIENCE = 20
"""After so many steps without a recording its absence is told."""
VARIABLE = ("params", "lr")
"""What of a group is not among its settings."""
CHANGED: tuple[str, ...] = ("lr", "capturable")
"""What a group has as it was, before and after a step."""
HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


@dataclass
class Recording:
    """What was recorded, and with what."""

    key: Any
    launch: Callable[[], object]
    made: Any
    held: Any = None
    """Tensors whose addresses are in the key, so that no other tensor gets these."""


class CapturedStep:
    """The step of an optimizer as a recording: `step()` in place of `optimizer.step()`.

    A rate that is a number would be recorded with it. During the step the rate of each group is a
    tensor, which is written before each launch; before and after it, where schedules, checkpoints
    and logs see it, it is the number. Every other setting, and the address of every weight,
    gradient and moment, belongs to the key of a recording: where one of them is another, the step
    runs as it is, and is recorded anew after a few.
    """

    def __init__(self, optimizer: Optimizer, recorder: Recorder | str) -> None:
        """Prepare the step; `"cuda-graphs"` for the device on which the weights then are."""
        self.optimizer = optimizer
        self.gradients = Gradients()
        self._recorder = recorder
        self._steps: list[Recording] = []
        self._others: list[Recording] = []
        self._seen: dict[Any, tuple[Any, int]] = {}
        self._rates: dict[int, Tensor] = {}
        self._written: dict[int, Any] = {}
        self._found: Tensor | None = None
        self._is_told = False
        self._plain_steps = 0

    @property
    def recorder(self) -> Recorder:
        """What records; for `"cuda-graphs"` it is made when it is first asked for."""
        if isinstance(self._recorder, str):
            place = self._parameters()[0].device
            made = recorder_of(CUDA_GRAPHS, place, "Update")
            assert made is not None
            self._recorder = made
        return self._recorder

    def step(self) -> None:
        """Take the step."""
        optimizer = self.optimizer
        if reason := self._cannot():
            self._tell(reason)
            optimizer.step()
            return
        if any(map(_divides_by_zero, optimizer.param_groups)):
            self._step_by_zero()
            return
        parameters, _ = self._parameters(), self.recorder
        self.gradients.adopt(parameters)
        with self._told_of_overflow():
            key = self._key()
            recording = _find(self._steps, key)
            if recording is None and self._is_due("step", key, self._steps):
                with self._settings():
                    recording = self._record(self._steps, key, self._step_alone)
            if recording is not None:
                self._write_rates()
                recording.launch()
                return
            with self._settings():
                optimizer.step()
        self._plain_steps += 1
        if self._plain_steps == PATIENCE and not self._steps:
            self._tell(
                "a number in its state or its settings is another one in each step, so each "
                "step would need a recording of its own"
            )

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of parameters and numbers that changes gradients, recorded in the same way."""
        return partial(self._call, function)

    def _call(self, function: Callable[..., Any], parameters: list[Tensor], *numbers: Any) -> Any:
        self.gradients.adopt(parameters)
        there = [each.data_ptr() if each.grad is not None else None for each in parameters]
        key = (function, numbers, there)
        recording = _find(self._others, key)
        if recording is None and self._is_due(function, key, self._others):
            call = partial(function, parameters, *numbers)
            recording = self._record(self._others, key, call)
        if recording is None:
            return function(parameters, *numbers)
        recording.launch()  # the next launch overwrites what it made
        return recording.made.clone() if isinstance(recording.made, Tensor) else recording.made

    def _is_due(self, part: Any, key: Any, recordings: list[Recording]) -> bool:
        """True if a part ran often enough as it is, without a change."""
        before, times = self._seen.get(part, (None, 0))
        times = times + 1 if before == key else 1
        self._seen[part] = key, times
        return times > WARMING and len(recordings) < MANY

    def _record(
        self, recordings: list[Recording], key: Any, launch: Callable[[], Any]
    ) -> Recording:
        replay, made = explained_recording(lambda: self.recorder.record(launch))
        recordings.append(Recording(key, replay, made, self._held()))
        return recordings[-1]

    def _step_alone(self) -> None:
        self.optimizer.step()

    def _step_by_zero(self) -> None:
        """Take a step with a rate of 0 as it is; where a device computes the rate, it divides."""
        kept = [group.get("capturable") for group in self.optimizer.param_groups]
        try:
            for group in self.optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = False
            self.optimizer.step()
        finally:
            for group, capturable in zip(self.optimizer.param_groups, kept, strict=True):
                if capturable is not None:
                    group["capturable"] = capturable

    def _cannot(self) -> str:
        """Why the step cannot be recorded; "" if it can."""
        optimizer: Any = self.optimizer
        for group in optimizer.param_groups:
            if not (group.get("fused") or "capturable" in group):
                name = type(optimizer).__name__
                return (
                    f"{name} computes with its rate on the host: {name}(..., fused=True) if it has "
                    "that, or AdamW(..., fused=True)"
                )
        if any(getattr(optimizer, name, None) for name in HOOKS):
            return "it has hooks, which run in Python at each step"
        return ""

    def _tell(self, reason: str) -> None:
        if not self._is_told:
            self._is_told = True
            logger.warning(
                "compile='cuda-graphs': the step of %s is not recorded: %s. It runs as it is; "
                "recordings of the forward and the backward pass go on",
                *(type(self.optimizer).__name__, reason),
            )

    def _parameters(self) -> list[Tensor]:
        return [each for group in self.optimizer.param_groups for each in group["params"]]

    def _key(self) -> Any:
        """All that a recording of the step would keep: settings, and what is where.

        Gradients were adopted, so their addresses are those of their parameters' own ones.
        """
        optimizer: Any = self.optimizer
        parameters = self._parameters()
        settings = [
            [value if name not in VARIABLE else None for name, value in group.items()]
            for group in optimizer.param_groups
        ]
        moments = [
            each.data_ptr() if isinstance(each, Tensor) else each
            for state in optimizer.state.values()
            for each in state.values()
        ]
        return (
            *([each.data_ptr() for each in parameters], [each.grad is None for each in parameters]),
            *(moments, settings, "found_inf" in vars(optimizer), optimizer.step),
        )

    def _held(self) -> Any:
        moments = [list(state.values()) for state in self.optimizer.state.values()]
        return self._parameters(), moments

    @contextmanager
    def _settings(self) -> Generator[None]:
        """The settings of a step that can be recorded, for a step that runs as it is too."""
        groups = self.optimizer.param_groups
        kept = [{name: group[name] for name in CHANGED if name in group} for group in groups]
        try:
            self._write_rates()
            for number, group in enumerate(groups):
                if number in self._rates:
                    group["lr"] = self._rates[number]
                if "capturable" in group:  # torch demands it of fused steps too
                    group["capturable"] = True
                for each in group["params"]:
                    _move_count(self.optimizer.state.get(each), each)
            yield
        finally:
            for group, before in zip(groups, kept, strict=True):
                group.update(before)

    def _write_rates(self) -> None:
        """Write the rate of each group where the recording reads it."""
        for number, group in enumerate(self.optimizer.param_groups):
            rate = group["lr"]
            if rate is self._rates.get(number) or not group["params"]:
                continue
            place = group["params"][0].device
            if number not in self._rates or self._rates[number].device != place:
                # Torch's fused kernels read float32 on a GPU, and any number on a CPU.
                kind = torch.float64 if place.type == "cpu" else torch.float32
                self._rates[number] = torch.empty((), dtype=kind, device=place)
                self._written.pop(number, None)
            if isinstance(rate, Tensor):
                self._rates[number].copy_(rate)
                self._written.pop(number, None)
            elif self._written.get(number) != rate:
                self._rates[number].fill_(rate)
                self._written[number] = rate

    @contextmanager
    def _told_of_overflow(self) -> Generator[None]:
        """What a fused optimizer is told of an overflow lies at an address that stays."""
        optimizer: Any = self.optimizer
        told = getattr(optimizer, "found_inf", None)
        if told is None:
            yield
            return
        if self._found is None:
            self._found = torch.empty_like(told)
        self._found.copy_(told)
        optimizer.found_inf = self._found
        try:
            yield
        finally:
            optimizer.found_inf = told


def _find(recordings: list[Recording], key: Any) -> Recording | None:
    return next((each for each in recordings if each.key == key), None)


def _divides_by_zero(group: dict[str, Any]) -> bool:
    """True for a rate of 0 in a step that is not fused."""
    return not group.get("fused") and isinstance(rate := group["lr"], float | int) and rate == 0


def _move_count(state: dict[str, Any] | None, parameter: Tensor) -> None:
    """Move a count of steps to the device, which a checkpoint of a plain run has on the CPU."""
    count = None if state is None else state.get("step")
    if state is not None and isinstance(count, Tensor) and count.device != parameter.device:
        state["step"] = count.to(parameter.device)
