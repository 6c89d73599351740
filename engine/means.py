"""Weighted means over all ranks; the sums stay on the device of the values until they are read."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from . import ranks
from .outputs import Output, part_of
from .state import as_float

Number = Tensor | float
Sums = dict[str, tuple[Number, Number]]
"""By name: the sum of values times weights, and the sum of the weights."""
Weight = Callable[[Any], Any] | float | None


@dataclass(eq=False)
class Means:
    """Adds up values by name, each with its weight; nothing is read from a device.

    If a name is not in every batch, its mean is over the batches that have it. NaN makes the mean
    NaN, unless it is left out.

    Args:
        decay: Below 1, an exponential mean: each new value multiplies the earlier sum of its name
            by `decay`. The weights decay too, so that the first means are not too small.
        skip_nan: True to leave NaN out.

    >>> means = Means()
    >>> for record in ({"a": 1}, {"a": 3, "b": 4}, {"b": 6}):
    ...     for name, value in record.items():
    ...         means.add(name, value, weight=1)
    >>> mean_over_ranks(means.sums)
    {'a': 2.0, 'b': 5.0}
    """

    decay: float = 1.0
    _: KW_ONLY
    skip_nan: bool = False
    sums: Sums = field(default_factory=dict[str, tuple[Number, Number]], init=False)

    def add(self, name: str, value: Any, weight: Number) -> None:
        """Add one value."""
        number, weight = _weighed(name, value, weight, skip_nan=self.skip_nan)
        total, weights = self.sums.get(name) or (_zero(number), 0)
        if self.decay != 1:
            total, weights = total * self.decay, weights * self.decay
        self.sums[name] = _plus(total, number, weight), weights + weight

    def reset(self) -> None:
        """Forget all values."""
        self.sums = {}

    def state_dict(self) -> dict[str, Any]:
        """The sums so far."""
        return {name: list(pair) for name, pair in self.sums.items()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from saved sums."""
        self.sums = {name: (total, weight) for name, (total, weight) in saved.items()}


class LastValues:
    """Like `Means`, but over the last `length` values only, and for one name."""

    def __init__(self, length: int, *, skip_nan: bool = False) -> None:
        self.skip_nan = skip_nan
        self._name = ""
        self._pairs: deque[tuple[Number, Number]] = deque(maxlen=length)

    def add(self, name: str, value: Any, weight: Number) -> None:
        """Add one value; the oldest one is forgotten."""
        number, weight = _weighed(name, value, weight, skip_nan=self.skip_nan)
        self._name = name
        self._pairs.append((_plus(_zero(number), number, weight), weight))

    @property
    def sums(self) -> Sums:
        """The sums over these values."""
        if not self._pairs:
            return {}
        totals, weights = zip(*self._pairs, strict=True)
        return {self._name: (_sum(totals), _sum(weights))}

    def reset(self) -> None:
        """Forget all values."""
        self._pairs.clear()

    def state_dict(self) -> dict[str, Any]:
        """The weighted values, and the weights."""
        return {"name": self._name, "pairs": [list(pair) for pair in self._pairs]}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from saved values, the last ones if there are more than `length`."""
        self._name = saved["name"]
        self._pairs.clear()
        self._pairs.extend((total, weight) for total, weight in saved["pairs"])


def mean_over_ranks(sums: Sums) -> dict[str, Number]:
    """The means over all ranks; a single process reads nothing from a device."""
    if not ranks.is_distributed():
        return {name: _quotient(*pair) for name, pair in sums.items()}
    own = dict(zip(sums, _on_host(sums), strict=True))
    numbers = {(name, at): number for name, pair in own.items() for at, number in enumerate(pair)}
    found = ranks.summed(numbers, group=ranks.data_group())
    return {
        name: torch.tensor(_quotient(total, found[name, 1]), dtype=torch.float64)
        for (name, at), total in found.items()
        if at == 0
    }


def weight_of(output: Any, weight: Weight, who: str) -> Number:
    """The weight of a batch: `weight`, the result of the function `weight`, or the output's own.

    The output's own weight is its `weight`, which `supervised` may set, or its number of samples.
    """
    if weight is not None:
        return weight(output) if callable(weight) else weight
    if isinstance(output, Output) and output.weight is not None:
        return output.weight  # type: ignore[no-any-return]
    if (count := samples_of(output)) is not None:
        return count
    raise TypeError(
        f"{who} got an output that is a {type(output).__name__}, which does not tell how many "
        "samples it is of: it has no 'prediction' or 'target'; give weight=, a function of the "
        "output or a number: weight=lambda output: len(output['names']), or weight=1 if every "
        "batch counts the same"
        + ("; at STEP_COMPLETED, it is not there yet: use ITERATION_COMPLETED" * (output is None))
    )


def samples_of(output: Any) -> int | None:
    """The length of the first tensor in the target, or in the prediction; None without a tensor.

    If the output has a number of samples, because its batch has no target, that number is used.
    """
    if isinstance(output, Output) and (count := output.samples or first_length(output.target)):
        return count  # of each batch of an evaluation: in few calls
    parts = part_of(output, "target"), part_of(output, "prediction")
    if count := first_length(parts[0]):
        return count
    if (count := first_length(parts[1])) or any(getattr(e, "ndim", 0) for e in tree_leaves(parts)):
        return count  # 0 for an empty batch
    return None


def first_length(nested: Any) -> int:
    """The length of the first tensor or array in nested containers; 0 without one.

    A list of mappings, such as boxes with labels, has one mapping for each sample: its length.

    >>> first_length([{"boxes": torch.ones(5, 4)}, {"boxes": torch.ones(3, 4)}])
    2
    """
    if isinstance(nested, Tensor) and nested.ndim:
        return nested.shape[0]  # `len` is a function of Python, which torch calls
    if isinstance(nested, Mapping):  # of any kind: torch's trees know only some
        return next((count for each in nested.values() if (count := first_length(each))), 0)
    if type(nested) in (list, tuple) and nested:
        first = nested[0]
        if isinstance(first, Mapping):
            return len(nested)
        if isinstance(first, Tensor) and first.ndim:  # as below, in few calls
            return first.shape[0]
    return next((len(leaf) for leaf in tree_leaves(nested) if getattr(leaf, "ndim", 0)), 0)


def flat(name: str, result: Any) -> dict[str, Any]:
    """A result, or the leaves of nested mappings under joined names.

    >>> flat("loss", {"a": 1, "b": {"c": 2}})
    {'loss/a': 1, 'loss/b/c': 2}
    """
    if not isinstance(result, Mapping):
        return {name: result}
    prefix = f"{name}/" if name else ""
    inner = [flat(f"{prefix}{key}", value) for key, value in result.items()]
    return {key: value for each in inner for key, value in each.items()}


def _weighed(name: str, value: Any, weight: Number, *, skip_nan: bool) -> tuple[Number, Number]:
    """A value as a number without a graph, and its weight, which is 0 if the value is left out."""
    is_left_out = False
    if isinstance(weight, Tensor):
        weight = weight.detach().to(_widest(weight.device))
    elif weight == 0:  # of an empty batch, whose mean is NaN
        is_left_out = True
    if not isinstance(value, Tensor):
        try:
            number = as_float(value)
        except (TypeError, ValueError):
            raise _no_number(name, value) from None
        is_left_out = is_left_out or (skip_nan and math.isnan(number))
        return (0.0, 0) if is_left_out else (number, weight)
    if value.numel() != 1 or value.is_complex():
        raise _no_number(name, value)
    value = value.detach().reshape(()) if value.requires_grad or value.ndim else value
    if is_left_out:
        return torch.zeros_like(value), 0
    if skip_nan:
        is_nan = value.isnan()
        # Not torch.where: it would copy a number to the device and wait.
        return value.masked_fill(is_nan, 0), ~is_nan * weight
    return value, weight


def _plus(total: Number, number: Number, weight: Number) -> Number:
    """The sum as a new tensor, in the precision of the total; in one operation if possible."""
    if isinstance(total, Tensor) and not isinstance(weight, Tensor):
        return torch.add(total, number, alpha=weight)
    return total + number * weight


def _sum(numbers: Sequence[Number]) -> Number:
    tensors = [each for each in numbers if isinstance(each, Tensor)]
    return torch.stack(tensors).sum() if len(tensors) == len(numbers) else sum(numbers)


def _zero(like: Number) -> Number:
    if not isinstance(like, Tensor):
        return 0.0
    return torch.zeros((), dtype=_widest(like.device), device=like.device)


def _widest(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # mps has no float64


def _quotient(total: Number, weight: Number) -> Number:
    if isinstance(total, Tensor) or isinstance(weight, Tensor):
        return total / weight
    return total / weight if weight else math.nan


def _on_host(sums: Sums) -> list[tuple[float, float]]:
    """The sums as floats, by one copy from each device."""
    numbers = [number for pair in sums.values() for number in pair]
    tensors = [number for number in numbers if isinstance(number, Tensor)]
    if tensors:
        stacked = torch.stack([each.to(tensors[0].device) for each in tensors])
        found = iter(stacked.tolist())
        numbers = [next(found) if isinstance(each, Tensor) else each for each in numbers]
    floats = [as_float(number) for number in numbers]
    return list(zip(floats[::2], floats[1::2], strict=True))


def _no_number(name: str, value: Any) -> TypeError:
    kind = f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    return TypeError(
        f"the value of {name!r} is no single number but {kind}; reduce it first, as by .mean()"
    )
