"""Tensors of different lengths, padded into one batch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

collate: Any
try:  # torch's docstring of `collate` names these for extensions
    from torch.utils.data._utils.collate import collate, default_collate_fn_map
except ImportError:  # then tensors inside samples inside samples are not padded
    collate, default_collate_fn_map = None, {}


@dataclass(frozen=True)
class Padded:
    """A `collate_fn` that pads tensors along their first dimension to the longest of the batch.

    Samples are tensors, numbers, texts and arrays, or dicts and tuples of them. Values that need no
    padding are collated by torch's `default_collate`.

    Args:
        value: The padding value.
        fields: Other padding values for fields of a sample, by key or by position.

    Raises:
        ValueError: The samples of a batch have other fields, or other numbers of them.

    >>> import torch
    >>> collate = Padded(fields={"labels": -100})
    >>> a, b = torch.tensor([1, 2, 3]), torch.tensor([4])
    >>> collate([{"ids": a, "labels": a}, {"ids": b, "labels": b}])
    {'ids': tensor([[1, 2, 3],
            [4, 0, 0]]), 'labels': tensor([[   1,    2,    3],
            [   4, -100, -100]])}
    """

    value: float = 0
    fields: Mapping[Hashable, float] = field(default_factory=dict)

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Make a batch of samples."""
        first = samples[0]
        if isinstance(first, Mapping):
            for number, each in enumerate(samples):
                if each.keys() != first.keys():  # torch's own would drop what the first one lacks
                    raise ValueError(
                        f"sample {number} of a batch has the fields {[*each]}, and the first one "
                        f"{[*first]}: Padded needs the same fields in each sample"
                    )
            return {name: self._batch([each[name] for each in samples], name) for name in first}
        if isinstance(first, tuple):
            parts = enumerate(zip(*samples, strict=True))
            batch = tuple(self._batch(values, position) for position, values in parts)
            return type(first)(*batch) if hasattr(first, "_fields") else batch
        return self._batch(samples, None)

    def _batch(self, values: Sequence[Any], name: Hashable) -> Any:
        pad = partial(_pad, value=self.fields.get(name, self.value))
        if collate is None:
            own = isinstance(values[0], Tensor)
            return pad(values) if own else default_collate(list(values))
        return collate(list(values), collate_fn_map={**default_collate_fn_map, Tensor: pad})


def _plain(tensors: Sequence[Tensor], *, collate_fn_map: Any = None) -> Any:
    return default_collate(list(tensors))


def _pad(tensors: Sequence[Tensor], *, value: float, collate_fn_map: Any = None) -> Any:
    if len({each.shape for each in tensors}) == 1:  # torch's own: in a worker, in shared memory
        own: Any = default_collate_fn_map.get(Tensor, _plain)
        return own(tensors, collate_fn_map=collate_fn_map)
    return pad_sequence(list(tensors), batch_first=True, padding_value=value)
