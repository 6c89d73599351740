"""Reading samples: in-memory data by one indexing call a batch, other data as torch does."""

from __future__ import annotations

import logging
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import Tensor, autograd
from torch.utils.data import StackDataset, Subset, TensorDataset, default_collate

try:  # torch's docstring of `collate` names these; without them, data is read sample by sample
    from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map
except ImportError:
    collate_tensor_fn, default_collate_fn_map = None, {}  # type: ignore[assignment]

logger: logging.Logger = logging.getLogger("camshaft")

_is_profiled: Any = getattr(autograd, "_profiler_enabled", None)

KINDS: dict[type, tuple[str, ...]] = {
    TensorDataset: ("tensors",),
    Subset: ("dataset", "indices"),
    StackDataset: ("datasets",),
}
"""The data sets that are read by one indexing call, and the attributes that hold their data."""

METHODS = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
TORCHS = {kind: [getattr(kind, name, None) for name in METHODS] for kind in KINDS}

_library: Any = torch
KEYS: Any = getattr(_library._C, "_dispatch_keys", None)
DENSE = KEYS and str(KEYS(torch.empty(0, device="cpu")))  # no torch before 2.8 compares sets
"""The dispatch keys, as text, of a plain tensor: on the CPU, strided and not lazy."""

INTEGERS: set[type] = {int}
"""The types of indices that select one sample."""
if "numpy" in sys.modules:  # an optional dependency of torch's
    INTEGERS.add(sys.modules["numpy"].int64)

MOST_DIMENSIONS = 4
"""With more dimensions, torch keeps the samples' memory format, such as channels last."""


class Samples:
    """A data set as torch's loader asks it; batches of in-memory data come already collated."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.begin(is_collated=False)

    def begin(self, is_collated: bool) -> None:
        """Begin a pass; batches may come already collated if `is_collated`: see `collated`."""
        self.is_collated = is_collated
        self._memory: InMemory | None = None

    def __getitems__(self, indices: Any) -> list[Any] | Whole:
        if self._memory is None:  # in a worker, after the user's function has prepared the data set
            self._memory = InMemory(self.dataset, default_collate if self.is_collated else None)
        if (whole := self._memory.batch(indices)) is not None:
            return Whole(whole)
        if getattr(self.dataset, "__getitems__", None):
            return self.dataset.__getitems__(indices)  # type: ignore[no-any-return]
        return [self.dataset[index] for index in indices]

    def __getitem__(self, index: Any) -> Any:
        """One sample, for a loader that makes no batches."""
        return self.dataset[index]


@dataclass(slots=True)
class Whole:
    """A batch that is collated already."""

    batch: Any


def collated(samples: Any) -> Any:
    """The batch of these samples: as it is if `Whole`, else by torch's `default_collate`."""
    return samples.batch if type(samples) is Whole else default_collate(samples)


class Unrecorded:
    """The batches of torch's single-process iterator; torch records them only while profiling."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches
        self.read: Any = batches._next_data

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.batches) if _is_profiled() else self.read()


def unrecorded(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches without torch's profiler record; unchanged if torch lacks the private names."""
    has_names = _is_profiled is not None and hasattr(batches, "_next_data")
    return Unrecorded(batches) if has_names else batches


class InMemory:
    """Reads batches of one data set by index, for one pass, while the result is surely the same.

    The data set's attributes are read again for each batch, so they may change in between.
    """

    def __init__(self, dataset: Any, collate: Any) -> None:
        """Take a data set, and the loader's `collate_fn`."""
        self.dataset = dataset
        self.is_on: bool = True
        self._kinds: dict[type, type | None] = {}
        self._dense: dict[int, ref[Tensor]] = {}  # weak, so that a replaced tensor can be freed
        self._is_noted = False
        if not is_default(collate):
            self._refuse("its collate_fn is not torch's default_collate")

    def batch(self, indices: Any) -> Any:
        """The batch of these indices; None from the first batch that needs reading by sample."""
        if not self.is_on:
            return None
        try:
            batch = self._read(self.dataset, indices)
        except Exception as error:  # any error: reading by sample raises it again, or succeeds
            self._refuse(str(error))
            return None
        if not self._is_noted:
            self._note("reads each batch by one index")
        return batch

    def _read(self, dataset: Any, indices: Any) -> Any:
        if type(indices) not in (list, tuple):
            raise TypeError(f"the indices of a batch are a {type(indices).__name__}")
        if type(dataset) is Tensor:
            return self._rows(dataset, _index(indices))
        own = type(dataset)
        if own not in self._kinds:
            self._kinds[own] = _kind_of(own)
        kind = None if "__getitems__" in vars(dataset) else self._kinds[own]
        if kind is TensorDataset:
            index = _index(indices)
            return [self._rows(tensor, index) for tensor in dataset.tensors]
        if kind is Subset:
            return self._read(dataset.dataset, _chosen(dataset.indices, indices))
        if kind is StackDataset:
            parts = dataset.datasets
            if type(parts) is dict:
                return {name: self._read(part, indices) for name, part in parts.items()}
            return [self._read(part, indices) for part in parts]
        raise TypeError(f"only a {own.__name__} knows how it makes samples")

    def _rows(self, tensor: Tensor, index: Tensor) -> Tensor:
        seen = self._dense.get(id(tensor))
        if seen is None or seen() is not tensor:
            if KEYS is None or type(tensor) is not Tensor or str(KEYS(tensor)) != DENSE:
                raise TypeError("a tensor is not a plain one on the CPU")
            if not 1 <= tensor.dim() <= MOST_DIMENSIONS:
                raise TypeError(f"a tensor has {tensor.dim()} dimensions")
            self._dense[id(tensor)] = ref(tensor)
        if tensor.requires_grad:
            raise TypeError("a tensor requires a gradient")
        return tensor.index_select(0, index)

    def _refuse(self, reason: str) -> None:
        self.is_on = False
        self._note(f"reads sample by sample: {reason}")

    def _note(self, what: str) -> None:
        self._is_noted = True
        logger.debug("the loader of a %s %s", type(self.dataset).__name__, what)


def is_default(collate: Any) -> bool:
    """True for torch's `default_collate`, unless a script registered other rules with it."""
    return (
        collate is default_collate
        and default_collate_fn_map.get(Tensor, default_collate) is collate_tensor_fn
        and not any(
            issubclass(kind, own) for kind in (tuple, dict) for own in default_collate_fn_map
        )
    )


def _kind_of(own: type) -> type | None:
    """The torch class whose reading this data set class inherits unchanged; None for others."""
    kind = next((each for each in KINDS if issubclass(own, each)), None)
    if kind is None or any(hasattr(own, name) for name in KINDS[kind]):
        return None
    return kind if [getattr(own, name, None) for name in METHODS] == TORCHS[kind] else None


def _chosen(order: Any, indices: Sequence[int]) -> list[Any]:
    """The indices into the data set inside a `Subset`."""
    if type(order) is Tensor and order.dtype is torch.int64 and order.dim() == 1:
        chosen: list[Any] = order[_index(indices)].tolist()
        return chosen
    return [order[index] for index in indices]


def _index(indices: Sequence[Any]) -> Tensor:
    """These indices as a tensor; refuses other types, such as bool, which may index otherwise."""
    if not set(map(type, indices)) <= INTEGERS:
        raise TypeError("the indices of samples are not all of type int")
    return torch.frombuffer(array("q", indices), dtype=torch.int64)
