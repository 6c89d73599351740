"""The outputs of a whole epoch, from all ranks, in the order of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ..engine import Engine, Events, Stage, State, ranks


@dataclass(frozen=True, eq=False)
class Collect:
    """Collect something of each batch of an epoch: predictions, embeddings, errors.

    At the end of each evaluation, `state.collected[name]` on every rank has the samples of all
    ranks, in the order of the data, each sample once. Tensors are joined along their first
    dimension, tensors without dimensions to a tensor of one value a batch, and lists to one list.
    In dicts and tuples each part is joined by itself; named tuples become dicts. Tensors that
    differ in another dimension become a list of samples. Any other value becomes a list of one
    value a batch.

    The collected samples stay in memory, and while they are gathered once for each rank: select
    little.

    Args:
        name: The name of the result in `state.collected`.
        select: Chooses what to collect from the engine's output; by default its prediction and
            target, or all of it if it has no such attributes.
        training: True to collect in training too.
        interleaved: True if rank r of n has the samples r, r + n, r + 2n, ..., as by
            `DistributedSampler` and `data[rank::ranks]`; False if each rank has one block.
        device: The device on which tensors are kept.

    >>> engine = Engine(lambda state, batch: {"double": 2 * batch, "name": ["x"] * len(batch)})
    >>> engine = engine.add(Collect())
    >>> state = engine.evaluate([torch.tensor([1, 2]), torch.tensor([3])])
    >>> state.collected["outputs"]
    {'double': tensor([2, 4, 6]), 'name': ['x', 'x', 'x']}
    """

    name: str = "outputs"
    select: Callable[[Any], Any] | None = None
    training: bool = False
    interleaved: bool = True
    device: torch.device | str = "cpu"

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Collect in evaluation, and in training if `training` is True."""
        for each in (engine.evaluation, engine) if self.training else (engine.evaluation,):
            each.on(Events.EPOCH_STARTED, stage=Stage.MEASURE)(self.begin)
            each.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.take)
            ended = Events.EPOCH_COMPLETED(last=each is engine.evaluation)  # also if it was stopped
            each.on(ended, stage=Stage.MEASURE)(self.gather)

    def begin(self, state: State[Any, Any]) -> None:
        """Begin a new epoch."""
        state.recall(self, Collected).parts.clear()

    def take(self, state: State[Any, Any]) -> None:
        """Keep what is selected of this batch."""
        selected = (self.select or _prediction_and_target)(state.output)
        kept = tree_map_only(Tensor, self._keep, _rows(selected))
        state.recall(self, Collected).parts.append(kept)

    def gather(self, state: State[Any, Any]) -> None:
        """Join what all ranks have kept in `state.collected`."""
        rows = state.recall(self, Collected)
        own = rows.joined()
        rows.parts.clear()
        found = [each for each in ranks.gathered(own) if each is not None]
        if found:
            state.collected[self.name] = _join(found, _deal if self.interleaved else _chain)

    def _keep(self, tensor: Tensor) -> Tensor:
        """A copy on `device`, which later changes in place do not affect."""
        kept = tensor.detach().to(self.device)
        return kept.clone() if kept.data_ptr() == tensor.data_ptr() else kept


@dataclass
class Collected:
    """What was kept so far: for each batch a mapping or tuple of tensors and lists."""

    parts: list[Any] = field(default_factory=list)

    def joined(self) -> Any:
        """All batches joined; None if there are none."""
        return _join(self.parts, _chain) if self.parts else None

    def state_dict(self) -> dict[str, Any]:
        """What was kept, joined, so that a checkpoint has few tensors."""
        self.parts = [self.joined()] if self.parts else []
        return {"parts": self.parts}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from there."""
        self.parts = list(saved["parts"])


def _prediction_and_target(output: Any) -> Any:
    if hasattr(output, "prediction") and hasattr(output, "target"):
        return {"prediction": output.prediction, "target": output.target}
    return output


def _rows(value: Any) -> Any:
    """The value of one batch, each part of it a list or a tensor with a first dimension."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: _rows(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_rows, value))
    if isinstance(value, Tensor):
        return value if value.ndim else value.reshape(1)
    return value if isinstance(value, list) else [value]


def _join(parts: Sequence[Any], arrange: Callable[[Sequence[Any]], Any]) -> Any:
    """Join parts of the same structure, each tensor or list by `arrange`.

    Raises:
        ValueError: The structures of the parts differ.
    """
    first = parts[0]
    if not isinstance(first, dict | tuple):
        return arrange(parts)
    names = {tuple(each) if isinstance(each, dict) else len(each) for each in parts}
    if len(names) > 1:
        raise ValueError(f"Collect got {names} of different batches; select the same of each")
    if isinstance(first, dict):
        return {name: _join([each[name] for each in parts], arrange) for name in first}
    return tuple(_join(column, arrange) for column in zip(*parts, strict=True))


def _chain(parts: Sequence[Any]) -> Any:
    """Join the parts, one after the other."""
    tensors = all(isinstance(each, Tensor) for each in parts)
    if tensors and len({each.shape[1:] for each in parts}) == 1:
        return torch.cat(list(parts))
    return [row for part in parts for row in part]


def _deal(parts: Sequence[Any]) -> Any:
    """Join the first row of each part, then the second of each, and so on."""
    count, joined = len(parts), _chain(parts)
    turns = torch.cat([torch.arange(len(each)) * count + n for n, each in enumerate(parts)])
    order = turns.argsort()
    return joined[order] if isinstance(joined, Tensor) else [joined[i] for i in order.tolist()]
