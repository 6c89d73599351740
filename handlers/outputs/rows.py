"""The rows of a batch, one a sample, and how those of several batches and ranks are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from ...engine import part_of

MISSING = object()


def prediction_and_target(output: Any) -> Any:
    """The parts of an output that are kept by default; all of it if it has no such parts."""
    prediction, target = (part_of(output, name, MISSING) for name in ("prediction", "target"))
    if prediction is MISSING or target is MISSING:
        return output
    return {"prediction": prediction} | ({} if target is None else {"target": target})


def rows_of(value: Any) -> Any:
    """The value of one batch; each part has to be a list, or a tensor with a first dimension."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value) and not isinstance(value, type | Mapping):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: rows_of(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(rows_of, value))
    if isinstance(value, Tensor):
        return value if value.ndim else value.reshape(1)
    return value if isinstance(value, list) else [value]


def kept(rows: Any, device: torch.device | str = "cpu") -> Any:
    """Copies of rows on a device, without graphs; later changes in place do not affect them."""

    def keep(tensor: Tensor) -> Tensor:
        moved = tensor.detach().to(device)
        return moved.clone() if moved.data_ptr() == tensor.data_ptr() else moved

    return tree_map_only(Tensor, keep, rows)


def lengths_of(rows: Any) -> set[int]:
    """The numbers of rows of all parts."""
    return set(map(len, tree_leaves(rows, is_leaf=_is_part)))


def row_of(rows: Any, number: int) -> Any:
    """One row of each part."""
    return tree_map(itemgetter(number), rows, is_leaf=_is_part)


def _is_part(rows: Any) -> bool:
    return not isinstance(rows, dict | tuple)


def join_parts(parts: Sequence[Any], arrange: Callable[[Sequence[Any]], Any]) -> Any:
    """Join parts of the same structure, each tensor or list by `arrange`."""
    first = parts[0]
    if not isinstance(first, dict | tuple):
        return arrange(parts)
    names = {tuple(each) if isinstance(each, dict) else len(each) for each in parts}
    if len(names) > 1:
        raise ValueError(f"got {names} of different batches; select the same of each")
    if isinstance(first, dict):
        return {name: join_parts([each[name] for each in parts], arrange) for name in first}
    return tuple(join_parts(column, arrange) for column in zip(*parts, strict=True))


def chain(parts: Sequence[Any]) -> Any:
    """The rows of one part, followed by those of the next."""
    tensors = all(isinstance(each, Tensor) for each in parts)
    if tensors and len({each.shape[1:] for each in parts}) == 1:
        return torch.cat(list(parts))
    return [row for part in parts for row in part]


def deal(parts: Sequence[Any]) -> Any:
    """The first row of each part, then the second row of each, and so on."""
    count, joined = len(parts), chain(parts)
    turns = torch.cat([torch.arange(len(each)) * count + n for n, each in enumerate(parts)])
    order = turns.argsort()
    return joined[order] if isinstance(joined, Tensor) else [joined[i] for i in order.tolist()]
