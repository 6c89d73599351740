"""A file with the fingerprints of each iteration, so that two runs can be compared bit by bit."""

from __future__ import annotations

import json
import os
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ....engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ....engine.modules import is_copy, is_spread, plain_names, weights_of
from ...loggers import JSONFile, Start
from .digests import PLAIN, dense_parts, digest, generator_digests, leaves

Prints = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """Write checksums of what each iteration reads and computes, for `camshaft compare`.

    The run stays the same to the last bit, and waits for the device and the disk in each row. A
    resumed run drops the rows past the point it is resumed from.

    Args:
        path: The file; one of an earlier run is moved aside, as by `JSONLines`.
        when: In which iterations, such as `Events.ITERATION_STARTED(every=100)`.
    """

    path: str | os.PathLike[str]
    _: KW_ONLY
    when: EventEnum | Trigger = Events.ITERATION_STARTED

    def __post_init__(self) -> None:
        when = Trigger.of(self.when)
        events, is_plain = [*when.events], all(clause.is_plain for clause in when.clauses)
        if events != [Events.ITERATION_STARTED] or not is_plain:
            raise ValueError(
                f"Fingerprints(when={self.when!r}): a row begins with its batch, so it needs "
                "Events.ITERATION_STARTED, with every=, at=, after= or before= as you like"
            )
        object.__setattr__(self, "path", os.path.abspath(self.path))  # also if a script moves

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Look at the batch first, at the gradients after the step, and at the rest in the end."""
        engine.on(Events.STARTED, stage=Stage.REPORT)(self.begin)
        engine.on(self.when, stage=Stage.MEASURE)(self.look_at_batch)
        engine.on(Events.STEP_COMPLETED, stage=Stage.MEASURE)(self.look_at_gradients)
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.write)

    def begin(self, state: State[Any, Any]) -> None:
        """Drop the rows past this point, or move the file of another run aside."""
        self.by_hand(state.engine.objects, done=state.iteration)

    def look_at_batch(self, state: State[Any, Any]) -> None:
        """Begin a row."""
        state.recall(self, Prints, saved=False).update(_row(state.iteration, state.batch))

    def look_at_gradients(self, state: State[Any, Any]) -> None:
        """Add the gradients of a step to the row."""
        if row := state.recall(self, Prints, saved=False):
            row["gradients"] = _marks(state.engine.objects, gradients=True)

    def write(self, state: State[Any, Any]) -> None:
        """Complete the row, and write it."""
        if row := state.recall(self, Prints, saved=False):
            metrics = state.metrics
            is_new = "loss" in metrics and metrics.clocks("loss")[0] == state.iteration
            self._write(row, state.engine.objects, metrics["loss"] if is_new else None)
            row.clear()

    def by_hand(
        self, model: Module | Mapping[str, Any], *, done: int = 0
    ) -> Callable[[Any, Tensor | float], None]:
        """A function that writes the same rows in a loop of your own: `fingerprint(batch, loss)`.

        Call it for each batch, between `optimizer.step()` and the next `optimizer.zero_grad()`.
        Several models are a dict by their names in `engine.objects`; `done` counts batches before.
        """
        clauses = Trigger.of(self.when).clauses
        models = model if isinstance(model, Mapping) else {"model": model}
        if not _marks(models):
            given = 'Engine(..., objects={"model": model}), or by_hand(model) in a loop'
            raise ValueError(f"Fingerprints finds no weights; it needs {given}")
        if ranks.rank() == 0:
            JSONFile(self.path, Start("", done + 1, done > 0)).close()
        iterations = count(done + 1)

        def fingerprint(batch: Any, loss: Tensor | float) -> None:
            if not (isinstance(loss, int | float) or getattr(loss, "numel", bool)() == 1):
                raise TypeError(
                    f"fingerprint(batch, loss) got a {type(loss).__name__} that is no single "
                    "number for the loss"
                )
            iteration = next(iterations)
            if any(clause.next(iteration - 1) == iteration for clause in clauses):
                row = _row(iteration, batch) | {"gradients": _marks(models, gradients=True)}
                self._write(row, models, loss)

        return fingerprint

    def _write(self, row: Prints, objects: Mapping[str, Any], loss: Any) -> None:
        value = loss.item() if isinstance(loss, Tensor) and loss.numel() == 1 else loss
        row["loss"] = {} if loss is None else {"loss": mark_of(value)}
        row["generators"], row["weights"] = generator_digests(), _marks(objects)
        if (rows := ranks.gathered_at_first(row)) is not None:
            file = JSONFile(self.path, Start("", row["iteration"], True))  # drops later rows
            file.append(f"{json.dumps(_together(rows))}\n".encode())
            file.sync()
            file.close()


def _row(iteration: int, batch: Any) -> Prints:
    marks = {name or "batch": mark_of(each) for name, each in leaves(batch)}
    return {"iteration": iteration, "batch": marks, "gradients": {}}


def _together(rows: list[Prints]) -> Prints:
    """One row for all ranks, with rank 0's gradients and weights, and those that it lacks."""
    made = rows[0] | {"ranks": len(rows)}
    for kind in ("batch", "generators", "loss") * (len(rows) > 1):
        pairs = [(rank, *each) for rank, row in enumerate(rows) for each in row[kind].items()]
        made[kind] = {f"rank {rank}: {name}": mark for rank, name, mark in pairs}
    for kind in ("gradients", "weights"):  # other ranks hold other modules in a pipeline
        made[kind] = dict(ChainMap(*(row[kind] for row in rows)))
    return made


def weights_by_name(objects: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights and buffers of the models among an engine's objects, without those of copies."""
    modules = {n: each for n, each in objects.items() if isinstance(each, Module)}
    models = {n: each for n, each in modules.items() if weights_of(each) and not is_copy(each)}
    return {
        f"{prefix}." * (len(models) > 1) + name: tensor
        for prefix, model in models.items()
        for own in [weights_of(model)]
        for name, tensor in zip(plain_names(model, own).values(), own.values(), strict=True)
    }


def _marks(objects: Mapping[str, Any], *, gradients: bool = False) -> dict[str, str]:
    """The marks of the weights and buffers of models, or of the gradients that are there."""
    return {
        name: mark_of(value)
        for name, tensor in weights_by_name(objects).items()
        if (value := tensor.grad if gradients else tensor) is not None
    }


def mark_of(value: Any) -> str:
    """A checksum; of a tensor also its kind before, and its norm and an alternating sum behind."""
    if not isinstance(value, Tensor):
        is_odd = not isinstance(value, (*PLAIN, list, tuple)) and " at 0x" in repr(value)
        return type(value).__name__ if is_odd else digest(value)  # an address tells nothing
    whole: Any = value.detach()
    whole = whole.full_tensor() if is_spread(whole) else whole  # as on one rank
    numbers = dense_parts(whole)[-1]
    numbers = torch.view_as_real(numbers).reshape(-1) if numbers.is_complex() else numbers
    squares = alternating = 0.0
    for wide in map(Tensor.double, numbers.split(2**14)):  # needs neither memory nor threads
        squares += float(wide.square().sum())
        alternating += float(wide[::2].sum() - wide[1::2].sum())
    kind = f"{str(value.dtype).removeprefix('torch.')}{[*value.shape]}"
    return f"{kind} {digest(whole)} {squares**0.5} {alternating}"
