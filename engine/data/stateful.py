"""Data with a state of their own, such as torchdata's `StatefulDataLoader`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from inspect import isgeneratorfunction
from itertools import chain, islice
from types import GeneratorType
from typing import Any

from ..state import (
    Batch,
    Position,
    Rng,
    capture_generators,
    gives_batches,
    has_state,
    parts_inside,
)
from .order import Order
from .sources import Source, forward_only, iterate
from .trail import END

RESTARTS = "restart_on_stop_iteration"
"""The attribute of torchdata's `Loader` by which it begins anew behind the last batch."""
DRAWING, QUIET = "begun by its first batch:draws:", "begun by its first batch:draws not:"


class Stateful(Source[Batch]):
    """Data with a state of its own, such as torchdata's `StatefulDataLoader`."""

    has_state = True
    data: Any

    def __init__(self, data: Any) -> None:
        """Take data; an attribute `fits_any_ranks` says if its state fits any number of ranks."""
        super().__init__(data, Order(fits_any_ranks=bool(getattr(data, "fits_any_ranks", False))))
        self.is_loader: bool = hasattr(data, "_get_iterator")
        """True if a pass begins by drawing a seed, as torch's loader does."""
        self.known: str | None = None
        """Whether batches of a generator draw random numbers: `DRAWING`, `QUIET`, or not known."""
        batches = getattr(data, "batch_sampler", None)
        sampler = getattr(data, "sampler", None) if batches is None else batches
        streams = getattr(sys.modules.get("torch.utils.data"), "IterableDataset", ())
        self.draws_lazily: bool = (
            isgeneratorfunction(getattr(type(sampler), "__iter__", None))
            and not has_state(sampler)
            and not getattr(data, "num_workers", 0)
            and not isinstance(getattr(data, "dataset", None), streams)
        )
        """True if a sampler without a state draws its order when the first batch is asked for."""
        self.held: Any = None
        """The loaded state, while the first batch is read and not handed out."""

    def open(self, position: Position, consumed: int) -> Iterator[Batch]:
        """Load the data's state, and begin.

        A generator begins with its first batch, which is read here: a loader draws a seed then, and
        many samplers draw their order. If its batches draw too, they need the generators of the
        training instead.
        """
        restarts = getattr(self.data, RESTARTS, None)
        if consumed:
            self.data.load_state_dict(position.data_state)
            self.known = position.mark
            if restarts:
                setattr(self.data, RESTARTS, False)  # the run goes on in this pass, not behind it
        batches = iterate(self.data)
        if restarts:
            setattr(self.data, RESTARTS, restarts)
        is_lazy = (
            isinstance(batches, GeneratorType) and batches.gi_code is not forward_only.__code__
        )
        if not (is_lazy or self.draws_lazily):
            return batches
        self.is_sure: bool = self.known is not None
        first: list[Batch] = []
        if consumed and self.known != DRAWING and (self.known or self.is_loader):
            first, self.held = [*islice(batches, 1)], position.data_state
        return chain.from_iterable(self._begun(first, batches))

    def _begun(self, first: list[Batch], batches: Iterator[Batch]) -> Iterator[Iterable[Batch]]:
        """All batches; at the second one, look whether it draws random numbers."""
        self.held = None
        yield first or islice(batches, 1)
        if self.known is None:
            before, second = capture_generators(), [*islice(batches, 1)]
            self.known = QUIET if capture_generators() == before else DRAWING
            self.is_sure = True
            yield second
        yield batches

    def mark(self, consumed: int) -> str | None:
        """Whether the batches draw random numbers, if this matters."""
        return self.known

    def state(self) -> Any:
        """The data's own state."""
        return self.data.state_dict() if self.held is None else self.held

    def settle(self, position: Position, rng: Rng) -> None:
        """Load the data's state between two passes, so that the next one begins anew.

        Data that keep the state for their next iterator apply it now. If that finds no batch, the
        end of a pass is behind them.
        """
        super().settle(position, rng)
        state, workers = position.data_state, getattr(self.data, "num_workers", 0)
        is_other = workers != position.sizes.get("workers", workers)
        if state is None or (
            is_other and hasattr(getattr(self.data, "dataset", None), "__getitem__")
        ):
            return  # nothing but the workers' places in a pass that is over
        try:
            self.data.load_state_dict(state)
            is_lazy = isgeneratorfunction(type(self.data).__iter__)
            if not is_lazy and all(each is not state for each in vars(self.data).values()):
                return
            batches = iter(self.data)  # the caller restores the generators it draws from
            if is_lazy and next(batches, END) is not END:
                self.data.load_state_dict(state)
        except Exception as error:
            if not is_other:
                raise
            raise ValueError(
                f"cannot carry on with num_workers={workers}: the state of the "
                f"{type(self.data).__name__} is of {position.sizes['workers']} workers, and it "
                f"cannot load that ({error!r}). Go on with as many"
            ) from error

    def doubts(self) -> list[str]:
        """Doubts about what the data's own state may not hold."""
        name, found = type(self.data).__name__, []
        if getattr(self.data, "num_workers", 0) or parts_inside(self.data, _reads_ahead):
            found.append(
                f"the random numbers that workers of a {name} draw are not in its state, nor those "
                "that its threads draw; if yours draw some, use a plain DataLoader"
            )
        elif self.known == DRAWING and self.is_loader:
            found.append(
                f"the sampler of a {name} draws its order when the first batch is asked for, and "
                "its samples draw random numbers too: those after a resume are others. Use a plain "
                "DataLoader, which draws the order again"
                if self.draws_lazily
                else f"a {name} draws a seed when its first batch is asked for, and its batches "
                "draw random numbers too: those after a resume are others. Let its __iter__ begin "
                "at once, instead of by a generator function"
            )
        if _is_unordered(self.data) or parts_inside(self.data, _is_unordered):
            found.append(
                "in_order=False hands samples out as they come, and a state counts them alone, so "
                "that some may come twice or never; use in_order=True"
            )
        if buffers := parts_inside(self.data, _has_buffer):
            found.append(
                f"a {type(buffers[0]).__name__} holds samples in a buffer, and the state of a "
                f"{name} may lose them, which camshaft prove shows. A plain DataLoader reads them "
                "again; ShardedStream(..., shuffle_buffer=) resumes exactly"
            )
        return found


def _reads_ahead(thing: Any) -> bool:
    """True for a node of torchdata that reads ahead in threads or workers."""
    inside = getattr(thing, "__dict__", {})
    return type(thing).__module__.startswith("torchdata.nodes") and any(
        type(n) is int and n for n in map(inside.get, ("num_workers", "prefetch_factor"))
    )


def _is_unordered(thing: Any) -> bool:
    return getattr(thing, "__dict__", {}).get("in_order") is False


def _has_buffer(thing: Any) -> bool:
    return gives_batches(type(thing)) and any(
        "buffer" in name and (isinstance(value, list | deque) or (type(value) is int and value > 1))
        for name, value in getattr(thing, "__dict__", {}).items()
    )
