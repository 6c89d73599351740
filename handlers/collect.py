"""Outputs of a whole epoch, of all ranks, in the order of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ..engine import ranks
from ..engine.engine import Engine
from ..engine.events import Events, Stage
from ..engine.state import State


@dataclass(frozen=True, eq=False)
class Collect:
    """Collect something of each batch of an epoch: predictions, embeddings, errors.

    At the end of each evaluation it is in `state.collected[name]`, on every rank: what all ranks
    have seen, in the order of the data, each sample once. Tensors are joined along their first
    dimension, those without one to a tensor of one value a batch, and lists to one list; dicts
    and tuples stay what they are, each part joined by itself, and named tuples become dicts.
    Tensors that differ in another dimension become a list of samples. Anything else becomes a
    list of one value a batch.

    It takes the memory of all that is collected, times the number of ranks while it is gathered;
    so select little.

    Args:
        name: What the result is called in `state.collected`.
        select: Takes what to collect from the engine's output; by default that is the output's
            prediction and target, if it has these, and else all of it.
        training: True to collect in training too.
        interleaved: False if the data is dealt out to ranks in blocks, one after the other, and
            not sample by sample in turn, as `DistributedSampler` and `data[rank::ranks]` do.
        device: Where tensors are kept.

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
        """Collect in evaluation, and in training if told so."""
        for each in (engine.evaluation, engine) if self.training else (engine.evaluation,):
            each.on(Events.EPOCH_STARTED, stage=Stage.MEASURE)(self.begin)
            each.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.take)
            ended = Events.EPOCH_COMPLETED(last=each is engine.evaluation)  # also if it was stopped
            each.on(ended, stage=Stage.MEASURE)(self.gather)

    def begin(self, state: State[Any, Any]) -> None:
        """Begin a new epoch."""
        state.recall(self, Rows).parts.clear()

    def take(self, state: State[Any, Any]) -> None:
        """Keep something of this batch."""
        selected = (self.select or _prediction_and_target)(state.output)
        kept = tree_map_only(Tensor, self._keep, _rows(selected))
        state.recall(self, Rows).parts.append(kept)

    def gather(self, state: State[Any, Any]) -> None:
        """Put what all ranks have kept into `state.collected`."""
        rows = state.recall(self, Rows)
        own = rows.joined()
        rows.parts.clear()
        found = [each for each in ranks.gathered(own) if each is not None]
        if found:
            state.collected[self.name] = _join(found, _deal if self.interleaved else _chain)

    def _keep(self, tensor: Tensor) -> Tensor:
        """The values as they are now; what is computed in place later does not change them."""
        kept = tensor.detach().to(self.device)
        return kept.clone() if kept.data_ptr() == tensor.data_ptr() else kept


@dataclass
class Rows:
    """What was kept so far, batch by batch; a mapping or tuple of tensors and lists each."""

    parts: list[Any] = field(default_factory=list)

    def joined(self) -> Any:
        """All of it in one, or None of nothing."""
        return _join(self.parts, _chain) if self.parts else None

    def state_dict(self) -> dict[str, Any]:
        """What was kept, as few tensors rather than some a batch."""
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
    """A value of one batch with something to count along in each part."""
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
    """Parts of one form in one, each tensor or list arranged by itself.

    Raises:
        ValueError: They are not of one form.
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
    """One part after the other."""
    tensors = all(isinstance(each, Tensor) for each in parts)
    if tensors and len({each.shape[1:] for each in parts}) == 1:
        return torch.cat(list(parts))
    return [row for part in parts for row in part]


def _deal(parts: Sequence[Any]) -> Any:
    """The first row of each part, then the second of each, and so on."""
    count, joined = len(parts), _chain(parts)
    turns = torch.cat([torch.arange(len(each)) * count + n for n, each in enumerate(parts)])
    order = turns.argsort()
    return joined[order] if isinstance(joined, Tensor) else [joined[i] for i in order.tolist()]
