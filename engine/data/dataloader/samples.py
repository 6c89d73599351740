"""How samples are read: a batch by one index where the data is in memory, else as torch does."""

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

try:  # what torch's docstring of `collate` tells to extend it by; without, data is read plainly
    from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map
except ImportError:
    collate_tensor_fn, default_collate_fn_map = None, {}  # type: ignore[assignment]

logger = logging.getLogger("camshaft")

_is_profiled: Any = getattr(autograd, "_profiler_enabled", None)

KINDS: dict[type, tuple[str, ...]] = {
    TensorDataset: ("tensors",),
    Subset: ("dataset", "indices"),
    StackDataset: ("datasets",),
}
"""The data sets that are read by one index, and the attributes from which torch reads them."""

METHODS = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
TORCHS = {kind: [getattr(kind, name, None) for name in METHODS] for kind in KINDS}

_library: Any = torch
KEYS: Any = getattr(_library._C, "_dispatch_keys", None)
DENSE = KEYS and str(KEYS(torch.empty(0, device="cpu")))  # no torch before 2.8 compares sets
"""What torch knows a tensor by that is in memory, strided, and lazy in no way."""

INTEGERS: set[type] = {int}
"""The types of indices that mean one sample."""
if "numpy" in sys.modules:  # an optional dependency of torch's
    INTEGERS.add(sys.modules["numpy"].int64)

MOST_DIMENSIONS = 4
"""Beyond these, torch keeps the memory format of the samples, such as channels last."""


class Samples:
    """A data set as torch's loader asks it; batches of data in memory come whole."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.begin(is_collated=False)

    def begin(self, is_collated: bool) -> None:
        """Begin a pass, in which batches may be given whole if `collated` takes them."""
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
        """One sample, of a loader that makes no batches."""
        return self.dataset[index]


@dataclass(slots=True)
class Whole:
    """A batch that is collated already."""

    batch: Any


def collated(samples: Any) -> Any:
    """A batch of these samples, by torch's `default_collate` unless it is there already."""
    return samples.batch if type(samples) is Whole else default_collate(samples)


class Unrecorded:
    """The batches of torch's iterator in this process, recorded only while a profiler runs."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches
        self.read = batches._next_data

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.batches) if _is_profiled() else self.read()


def unrecorded(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches without torch's record of each; as they are where torch has other insides."""
    has_names = _is_profiled is not None and hasattr(batches, "_next_data")
    return Unrecorded(batches) if has_names else batches


class InMemory:
    """Reads batches of one data set by index, for a pass, while that is certain to be the same.

    The attributes of data sets are read with each batch, so it may change in between.
    """

    def __init__(self, dataset: Any, collate: Any) -> None:
        """Take a data set, and the loader's `collate_fn`."""
        self.dataset = dataset
        self.is_on = True
        self._kinds: dict[type, type | None] = {}
        self._dense: dict[int, ref[Tensor]] = {}  # a tensor that was replaced may be freed
        self._has_told = False
        if not is_default(collate):
            self._refuse("its collate_fn is not torch's default_collate")

    def batch(self, indices: Any) -> Any:
        """The batch of these indices; None from the first one on that has to be read plainly."""
        if not self.is_on:
            return None
        try:
            batch = self._read(self.dataset, indices)
        except Exception as error:  # whatever it is: the plain way raises it, or knows better
            self._refuse(str(error))
            return None
        if not self._has_told:
            self._tell("reads each batch by one index")
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
        self._tell(f"reads sample by sample: {reason}")

    def _tell(self, what: str) -> None:
        self._has_told = True
        logger.debug("the loader of a %s %s", type(self.dataset).__name__, what)


def is_default(collate: Any) -> bool:
    """True for torch's `default_collate`, unless other rules were registered with it."""
    return (
        collate is default_collate
        and default_collate_fn_map.get(Tensor, default_collate) is collate_tensor_fn
        and not any(
            issubclass(kind, own) for kind in (tuple, dict) for own in default_collate_fn_map
        )
    )


def _kind_of(own: type) -> type | None:
    """The class of torch's as which data sets of this class are read; None for others."""
    kind = next((each for each in KINDS if issubclass(own, each)), None)
    if kind is None or any(hasattr(own, name) for name in KINDS[kind]):
        return None
    return kind if [getattr(own, name, None) for name in METHODS] == TORCHS[kind] else None


def _chosen(order: Any, indices: Sequence[int]) -> list[Any]:
    """The indices of a `Subset`."""
    if type(order) is Tensor and order.dtype is torch.int64 and order.dim() == 1:
        chosen: list[Any] = order[_index(indices)].tolist()
        return chosen
    return [order[index] for index in indices]


def _index(indices: Sequence[Any]) -> Tensor:
    """These indices as a tensor; numbers of other types may mean something else as an index."""
    if not set(map(type, indices)) <= INTEGERS:
        raise TypeError("the indices of samples are not all of type int")
    return torch.frombuffer(array("q", indices), dtype=torch.int64)
