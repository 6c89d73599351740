"""Several data sets mixed by weights: an order of their samples, for any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Sampler

from ...state import seed_of, whole_seed

ENDS = ("stop", "repeat", "others")


class Mixture(Sampler[int]):
    """Mixes data sets by weights: the order of the samples of `data`, which holds them all.

    The order is a function of the seed and the number of the epoch. In each epoch a source goes on
    behind what earlier epochs have had of it, and is shuffled anew in each pass of its own.

    >>> web, code = range(70), range(70, 100)
    >>> mixture = Mixture({"web": web, "code": code}, weights={"web": 0.7, "code": 0.3})
    >>> first = [mixture.data[index] for index in mixture][:10]
    >>> sum(sample < 70 for sample in first)
    7
    """

    def __init__(
        self,
        sources: Mapping[str, Dataset[Any] | Sequence[Any]],
        *,
        weights: Mapping[str, float] | None = None,
        temperature: float | None = None,
        ended: Literal["stop", "repeat", "others"] = "stop",
        samples: int | None = None,
        random: bool = False,
        seed: int = 0,
    ) -> None:
        """Take note of the sources; the order of their names means nothing.

        Args:
            sources: Samples by index, each under a name.
            weights: The shares of the sources, which need not add up to 1; by default their sizes.
            temperature: In place of weights: these are the sizes to the power of `1 / temperature`.
            ended: When a source has given its last sample, `"stop"` ends the epoch, `"repeat"`
                shuffles the source anew, and `"others"` goes on with the others to the last sample.
            samples: Of an epoch, with `"repeat"`; by default until each source was read once.
            random: False to keep the shares in every prefix of an epoch, to within one sample; True
                to draw the order of the sources at random, with the same shares in the epoch.
            seed: Of the order, with the number of the epoch; the same on all ranks.

        Raises:
            TypeError: A source has no indices or no length, as a stream.
            ValueError: A source would give no sample, or weights, names or options do not fit.
        """
        for given in (sources, {} if weights is None else weights):
            if not isinstance(given, Mapping):
                raise TypeError(
                    f"Mixture got a {type(given).__name__}; sources and weights need names: "
                    'Mixture({"web": web, "code": code}, weights={"web": 0.7, "code": 0.3})'
                )
        self.names: list[str] = sorted(sources)
        for name in self.names:
            _check(name, sources[name])
        if not sources:
            raise ValueError("Mixture({}) has no source: give data sets by their names")
        if ended not in ENDS:
            raise ValueError(f"ended={ended!r}: needs one of {', '.join(map(repr, ENDS))}")
        if samples is not None and (ended != "repeat" or samples < 1):
            raise ValueError(
                f"samples={samples} with ended={ended!r}: an epoch of a given number of samples, "
                'from 1, needs ended="repeat"; for shorter epochs write engine.run(epoch_length=)'
            )
        self.data: ConcatDataset[Any] = ConcatDataset([sources[name] for name in self.names])  # type: ignore[misc]
        self.sizes: list[int] = [len(sources[name]) for name in self.names]  # type: ignore[arg-type]
        self._shares: tuple[float, ...] = tuple(self._weights(weights, temperature))
        self.ended = ended
        self.samples: int | None = samples
        self.random: bool = random
        self.seed: int = whole_seed(seed)
        self.epoch: int = 0
        for name, count in zip(self.names, self._counts, strict=True):
            if not count:
                raise ValueError(
                    f"the source {name!r} gives no sample in an epoch of {len(self)}: give it "
                    'more weight, or make epochs longer, by ended="repeat" and samples='
                )

    @property
    def weights(self) -> tuple[float, ...]:
        """The shares of the sources, by the order of their names; they add up to 1.

        They are fixed, since what earlier epochs have had of a source follows from them.
        """
        return self._shares

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch, counted from 0; the engine calls it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return sum(self._counts)

    def __iter__(self) -> Iterator[int]:
        parts = self._parts
        if self.random:
            generator = _generator(self.seed, self.epoch)
            parts = [part[torch.randperm(len(part), generator=generator)] for part in parts]
        order = torch.cat(parts)
        first = 0
        for source, (size, count) in enumerate(zip(self.sizes, self._counts, strict=True)):
            order[order == source - len(self.sizes)] = first + self._read(source, count)
            first += size
        return iter(order.tolist())

    def __repr__(self) -> str:
        shares = zip(self.names, self._shares, self.sizes, strict=True)
        sources = ", ".join(f"{name}: {weight} of {size}" for name, weight, size in shares)
        options = f"samples={self.samples}, random={self.random}, seed={self.seed}"
        return f"Mixture({sources}, ended={self.ended}, {options})"

    def _weights(
        self, weights: Mapping[str, float] | None, temperature: float | None
    ) -> list[float]:
        if weights is None:
            temperature = 1.0 if temperature is None else temperature
            if not 0 < temperature < inf:
                raise ValueError(f"temperature={temperature}: needs a number above 0")
            found = [(size / max(self.sizes)) ** (1 / temperature) for size in self.sizes]
        elif temperature is not None:
            raise ValueError("Mixture takes weights= or temperature=, which makes them: give one")
        elif sorted(weights) != self.names:
            raise ValueError(
                f"weights of {', '.join(sorted(weights)) or 'nothing'}, and the sources are "
                f"{', '.join(self.names)}: give one weight for each"
            )
        else:
            found = [float(weights[name]) for name in self.names]
        if not all(weight > 0 for weight in found) or sum(found) == inf:
            raise ValueError(
                f"weights {dict(zip(self.names, found, strict=True))}: each has to be above 0, "
                "and their sum finite; leave out a source that is to give nothing"
            )
        return [weight / sum(found) for weight in found]

    @cached_property
    def _parts(self) -> list[Tensor]:
        """The source of each place of an epoch, from `-len(sources)`; a part begins at an end."""
        left, parts = dict(enumerate(self.sizes)), []
        while left:
            part, counts = [], dict.fromkeys(left, 0)
            missing = set(left)
            for source in _even({each: self._shares[each] for each in left}):
                part.append(source - len(self.sizes))
                counts[source] += 1
                if counts[source] == left[source]:
                    missing.discard(source)
                    if self.samples is None and (self.ended != "repeat" or not missing):
                        break
                if len(part) == self.samples:
                    break
            parts.append(torch.tensor(part))
            if self.ended != "others":
                break
            left = {each: size - counts[each] for each, size in left.items() if each in missing}
        return parts

    @cached_property
    def _counts(self) -> list[int]:
        """How many samples of each source an epoch has."""
        order = torch.cat(self._parts) + len(self.sizes)
        return order.bincount(minlength=len(self.sizes)).tolist()

    def _read(self, source: int, count: int) -> Tensor:
        """The indices in the source of its samples of this epoch."""
        place, found = self.epoch * count, []
        while count:
            number, begin = divmod(place, self.sizes[source])
            generator = _generator(self.seed, source, number)
            order = torch.randperm(self.sizes[source], generator=generator)
            found.append(order[begin : begin + count])
            place, count = place + len(found[-1]), count - len(found[-1])
        return torch.cat(found)


def _generator(*key: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(*key))


def _even(weights: Mapping[int, float]) -> Iterator[int]:
    """Sources, without an end: each has its share of every prefix, to within one sample.

    Of those that may come, the one that has to come first: Tijdeman, The chairman assignment
    problem (1980). The largest deficit first would let small shares fall behind by more.
    """
    total, given = sum(weights.values()), dict.fromkeys(weights, 0)
    slack = 1 / max(1, 2 * len(weights) - 2)
    place = 0
    while True:
        place += 1
        owed = {each: weights[each] / total * place - given[each] for each in weights}
        ready = [each for each in weights if owed[each] >= slack - 1e-6]
        source = min(ready, key=lambda each: (1 - slack - owed[each]) / weights[each])
        given[source] += 1
        yield source


def _check(name: str, source: Any) -> None:
    if isinstance(source, tuple) and any(isinstance(each, Tensor) for each in source):
        raise TypeError(
            f"the source {name!r} is a tuple of tensors, such as a slice of a TensorDataset, and "
            "each of them would be one sample: write torch.utils.data.Subset(dataset, range(14)), "
            "or TensorDataset(*tensors)"
        )
    if isinstance(source, IterableDataset) or not (
        hasattr(source, "__getitem__") and hasattr(source, "__len__")
    ):
        raise TypeError(
            f"Mixture mixes samples by their indices, and {name!r} is a {type(source).__name__} "
            "without indices or length: give a Dataset with __getitem__ and __len__, or a list; "
            "mix streams in one stream of your own"
        )
    if not len(source):
        raise ValueError(f"the source {name!r} is empty: leave it out, or give it samples")
