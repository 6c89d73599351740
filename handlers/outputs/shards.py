"""The files of one rank of `predict`: each holds samples and the position of the pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch.utils._pytree import tree_leaves

from ...engine import EventEnum, Events, State
from ..checkpoint import Checkpoints, Saved, checkpoints, resume_alone, save_alone
from .rows import chain, join_parts, kept, lengths_of, prediction_and_target, rows_of

OUTPUTS = "outputs"
"""The object of a shard that holds its samples, and the name of their file."""
FIRST = "checksum of the first batch"
MOST = 50_000
"""The most samples of a shard: non-tensors and unequal shapes are listed one by one."""


@dataclass(eq=False)
class Shards:
    """Keeps the samples of some batches, and writes them as a shard if they are many or old."""

    place: Path
    is_held: Callable[[], bool]
    """Whether the place is still the directory that was locked for these shards."""
    select: Callable[[Any], Any] | None
    interleaved: bool
    seconds: float
    most: int
    """A shard is written once its samples have this many bytes."""
    weights: str
    """A checksum of the weights that predict."""
    parts: list[Any] = field(default_factory=list)
    samples: int = 0
    size: int = 0
    after: int = 0
    """The number of batches before the first one in memory."""
    began: float = field(default_factory=time.monotonic)
    first: int | None = None
    """A checksum of the first batch, if it is known."""

    @cached_property
    def written(self) -> Checkpoints:
        """The shards that an earlier call has written."""
        return checkpoints(self.place)

    @cached_property
    def last(self) -> Saved | None:
        """The last shard of an earlier call, verified."""
        return self.written.latest()

    @property
    def are_complete(self) -> bool:
        """True if an earlier call came to the end of the data."""
        return self.last is not None and self.last.manifest.epoch > 0

    @property
    def handlers(self) -> Mapping[EventEnum, Callable[[State[Any, Any]], None]]:
        """By event of the evaluation: what to call."""
        return {
            Events.LOADING: self.load,
            Events.ITERATION_COMPLETED: self.take,
            Events.EPOCH_COMPLETED: self.ask,
            Events.SAVING: self.write,
        }

    def check(self, sizes: Mapping[str, int], beginning: Callable[[], int | None]) -> None:
        """Refuse to mix these predictions with others.

        Args:
            sizes: Those of the data, by name.
            beginning: Reads the first batch once more, and gives a checksum.

        Raises:
            ValueError: The shards there are damaged, or of other weights or data.
        """
        odd, self.first = "", beginning()
        if self.last is not None and self.written.broken:
            odd = f"a damaged shard: {self.written.broken}"
        elif self.last is not None and self.last.manifest.reason != self._reason:
            odd = f"other weights: {self.last.manifest.reason}, and now {self._reason}"
        elif self.last is not None:
            known = self.last.manifest.metrics
            first = {} if self.first is None else {FIRST: self.first}
            changed = [
                f"{name} {known[f'data/{name}']:.0f} -> {size}"
                for name, size in {**sizes, **first}.items()
                if known.get(f"data/{name}", size) != size
                and (name != FIRST or beginning() == size)  # else it draws random numbers
            ]
            odd = f"other data: {', '.join(changed)}" if changed else ""
        if odd:
            raise ValueError(
                f"{self.place.parent} holds predictions of {odd}. Choose another directory, or "
                "remove this one to begin anew"
            )

    def load(self, state: State[Any, Any]) -> None:
        """Resume the evaluation after the last shard."""
        if self.last is not None:
            resume_alone(state, self.last)
            self.after = state.iteration

    def take(self, state: State[Any, Any]) -> None:
        """Keep the samples of a batch; ask for a shard if there are enough."""
        rows = kept(rows_of((self.select or prediction_and_target)(state.output)))
        lengths = lengths_of(rows)
        if len(lengths) != 1:
            raise ValueError(
                f"predict() needs one row for each sample, and the output's parts have "
                f"{sorted(lengths)} rows; give select=, a function that chooses from the output: "
                "select=lambda output: {'class': output.prediction.argmax(-1)}"
            )
        self.parts.append(rows)
        self.samples += lengths.pop()
        self.size += sum(getattr(leaf, "nbytes", 100) for leaf in tree_leaves(rows))
        is_old = time.monotonic() - self.began >= self.seconds
        if is_old or self.size >= self.most or self.samples >= MOST:
            self.ask(state)

    def ask(self, state: State[Any, Any]) -> None:
        """Ask for a shard at the next commit point."""
        state.save("a shard of predictions", by=self)

    def write(self, state: State[Any, Any]) -> None:
        """Write the samples and the position of the evaluation; when this returns, they last.

        Raises:
            OSError: Nothing was written.
        """
        if not any(by in (None, self) for _, by in state.saves):
            return
        if not self.is_held():
            raise FileNotFoundError(
                f"{self.place}, or the file LOCK in it, was removed or moved while predict wrote "
                "there: call predict again, which computes what is missing"
            )
        position = state.control.position
        sizes = {} if position is None else position.sizes
        numbers = {f"data/{name}": size for name, size in sizes.items()}
        numbers |= {"samples": self.samples, "after": self.after}
        numbers |= {"interleaved": int(self.interleaved)}
        if self.first is not None:
            numbers[f"data/{FIRST}"] = self.first
        rows = join_parts(self.parts, chain) if self.parts else None
        self.parts, self.samples, self.size = [], 0, 0  # not in memory twice
        save_alone(state, self.place, {OUTPUTS: {"rows": rows}}, self._reason, numbers)
        self.after, self.began = state.iteration, time.monotonic()

    @property
    def _reason(self) -> str:
        return f"predictions of the weights {self.weights}"
