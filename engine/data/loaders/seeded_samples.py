"""Samples whose random numbers depend only on the seed and on their place in the order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch.utils.data import Dataset, Subset

from ...state import capture_generators, restore_generators, seed_all, seed_of, whole_seed


class Placed(NamedTuple):
    """The index and the place of a sample: the engine asks `SeededSamples` for it."""

    index: Any
    number: int
    """The pass over the data, from 1."""
    place: int
    """Its place among the samples of the pass, over all ranks, from 0."""


class SeededSamples(Dataset[Any]):
    """A data set whose samples draw the same random numbers on any ranks, workers and batches.

    While a sample is loaded, the generators of Python, NumPy and torch are seeded by the seed, the
    number of the pass and the sample's place in the order over all ranks; afterwards, their states
    are restored. An engine gives the places; without an engine, nothing is seeded.

    >>> from camshaft import SeededSamples, loader
    >>> samples = SeededSamples([0.5, 1.5, 2.5], seed=7)
    >>> train_loader = loader(samples, 2, training=True)  # for engine.run(train_loader, ...)
    """

    def __init__(self, dataset: Dataset[Any] | Sequence[Any], seed: int = 0) -> None:
        """Wrap a data set; other wrappers, such as `Subset`, go inside.

        Args:
            dataset: Samples by index; they may draw from the generators of Python, NumPy and
                torch. The data set's own generators are not seeded.
            seed: The seed of the run; the same on all ranks.
        """
        self.dataset: Dataset[Any] | Sequence[Any] = dataset
        self.seed: int = whole_seed(seed)

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Load samples, each with its own random numbers if the engine has given its place."""
        if not all(isinstance(index, Placed) for index in indices):
            return [self.dataset[index] for index in indices]
        before = capture_generators()
        try:
            return [self._load(*index) for index in indices]
        finally:
            restore_generators(before)

    def _load(self, index: Any, number: int, place: int) -> Any:
        seed_all(seed_of(self.seed, number, place))
        return self.dataset[index]


def inner_of(dataset: object) -> object:
    """The data set inside of wrappers that give its samples as they are."""
    while isinstance(dataset, Subset | SeededSamples):
        dataset = dataset.dataset
    return dataset
