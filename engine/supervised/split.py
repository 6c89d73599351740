"""Batches that do not fit: a part at a time, and the same mean over all samples."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from ..modules.weights import buffers_in_training
from ..state.generators import capture_generators, restore_generators

if TYPE_CHECKING:
    from ..engine import Engine
    from ..state.state import State
    from ..update.update import Update

    Result = tuple[Any, Any, Tensor]
    Forward = Callable[[Any, Any], Result]

logger = logging.getLogger("camshaft")
OUT_OF_MEMORY: type[BaseException] = getattr(
    torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError
)  # its public name since torch 2.5


@dataclass
class Largest:
    """The most samples that may be at once on the device, once a batch did not fit."""

    training: int | None = None
    evaluation: int | None = None


@dataclass(frozen=True, eq=False)
class Split:
    """Takes batches through the model at most so many samples at a time."""

    most: int | None
    """None to halve the parts whenever memory runs out."""

    @classmethod
    def of(cls, most: int | str, update: Update) -> Split:
        """The split into parts of at most so many samples, or of `"auto"`.

        Raises:
            ValueError: That is no number of samples, or the optimizer does not go with it.
        """
        if most == "auto":
            number = None
        elif isinstance(most, int) and not isinstance(most, bool) and most > 0:
            number = most
        else:
            raise ValueError(f"split={most!r}: needs a number of samples, from 1, or 'auto'")
        if update.needs_closure:
            raise ValueError(
                f"split= does not go with {type(update.optimizer).__name__}, which evaluates a "
                "batch several times; make the batches smaller and accumulate= more of them"
            )
        return cls(number)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """It only remembers."""

    def train(
        self, state: State[Any, Any], pair: tuple[Any, Any], forward: Forward, update: Update
    ) -> Result:
        """Prediction, target and loss of a whole batch, after its backward passes.

        Raises:
            ValueError: A part has no loss.
        """

        def take(most: int) -> Result:
            whole = Whole()
            for input, target, share, more in parts(pair, most):
                with update.micro_batch(state, more=more):
                    prediction, there, loss = forward(input, target)
                    update.backward(state, loss * share)
                whole.add(prediction, there, loss, share)
            return whole.result()

        if self.most is not None:
            return take(self.most)
        largest = state.recall(self, Largest)
        put_back = Before(state, update).put_back
        return _search(take, samples_of(pair), largest, "training", put_back)

    def evaluate(self, state: State[Any, Any], pair: tuple[Any, Any], forward: Forward) -> Result:
        """Prediction, target and loss of a whole batch."""

        def take(most: int) -> Result:
            whole = Whole()
            for input, target, share, _ in parts(pair, most):
                whole.add(*forward(input, target), share)
            return whole.result()

        if self.most is not None:
            return take(self.most)
        largest = (state.parent or state).recall(self, Largest)
        return _search(take, samples_of(pair), largest, "evaluation", lambda: None)


def _search(
    take: Callable[[int], Result],
    samples: int,
    largest: Largest,
    kind: str,
    put_back: Callable[[], None],
) -> Result:
    """Take a batch in the largest parts that fit, as far as is known, and halve them if not."""
    rng = capture_generators()
    while True:
        most = getattr(largest, kind) or samples
        try:
            return take(most)
        except OUT_OF_MEMORY:
            if most == 1:
                raise
        setattr(largest, kind, min(most, samples) // 2)  # outside: the error holds the memory
        logger.warning(
            "out of memory with %d samples at once; in %s there are now %d at most",
            *(min(most, samples), kind, getattr(largest, kind)),
        )
        restore_generators(rng)
        put_back()


class Before:
    """What a batch that does not fit must leave as it was: window, gradients and buffers."""

    def __init__(self, state: State[Any, Any], update: Update) -> None:
        """Copy them."""
        self.state, self.update = state, update
        window = state.step_under_way.windows.get(id(update))
        self.window = None if window is None else window.copied()
        objects = [] if state.engine is None else state.engine.objects.values()
        self.buffers = [(each, each.clone()) for each in buffers_in_training(objects)]

    def put_back(self) -> None:
        """Make them what they were."""
        for buffer, copy in self.buffers:
            buffer.copy_(copy)
        self.state.step_under_way.windows.pop(id(self.update), None)
        if self.window is not None:
            self.state.step_under_way.windows[id(self.update)] = self.window()


class Whole:
    """What the parts of a batch give together."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.predictions: list[Any] = []
        self.targets: list[Any] = []
        self.shares: list[float] = []
        self.loss: Tensor | float = 0.0

    def add(self, prediction: Any, target: Any, loss: Tensor, share: float) -> None:
        """Keep what a part gave."""
        self.predictions.append(tree_map_only(Tensor, Tensor.detach, prediction))
        self.targets.append(target)
        self.shares.append(share)
        self.loss = self.loss + loss.detach() * share

    def result(self) -> Result:
        """Prediction, target and loss of the batch."""
        loss = torch.as_tensor(self.loss)
        return self._joined(self.predictions), self._joined(self.targets), loss

    def _joined(self, trees: list[Any]) -> Any:
        def join(*leaves: Any) -> Any:
            if not isinstance(leaves[0], Tensor):
                return leaves[0]
            if leaves[0].ndim:
                return torch.cat(leaves)
            return sum(leaf * share for leaf, share in zip(leaves, self.shares, strict=True))

        return trees[0] if len(trees) == 1 else tree_map(join, *trees)


def parts(pair: tuple[Any, Any], most: int) -> Iterator[tuple[Any, Any, float, bool]]:
    """Parts of at most so many samples: input, target, their share, and whether more follow.

    They are as even as can be: a small last part would be a small batch to a batch norm.

    >>> [len(input) for input, *_ in parts((torch.zeros(7, 2), torch.zeros(7)), 3)]
    [2, 2, 3]
    """
    samples = samples_of(pair)
    count = -(-samples // most)
    edges = [number * samples // count for number in range(count + 1)]
    for start, end in pairwise(edges):
        cut = tree_map_only(Tensor, partial(_rows, start, end), pair)
        yield cut[0], cut[1], (end - start) / samples, end < samples


def _rows(start: int, end: int, tensor: Tensor) -> Tensor:
    return tensor[start:end] if tensor.ndim else tensor


def samples_of(pair: tuple[Any, Any]) -> int:
    """The length of the first dimension of all tensors that have one.

    Raises:
        ValueError: They have different lengths, or there is none.
    """
    leaves = [leaf for leaf in tree_leaves(pair) if isinstance(leaf, Tensor) and leaf.ndim]
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) != 1:
        raise ValueError(
            f"split= cuts tensors along their first dimension, the samples, and those of this "
            f"batch have the lengths {sorted(lengths)}; give prepare_batch=, a function that makes "
            "a pair of tensors with one length of a batch"
        )
    (samples,) = lengths
    return samples
