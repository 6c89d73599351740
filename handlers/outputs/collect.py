"""The outputs of a whole epoch, from all ranks, in the order of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch

from ...engine import Engine, Events, Stage, State, ranks
from ..common import refuse_overwriting
from .rows import chain, deal, join_parts, kept, prediction_and_target, rows_of


@dataclass(frozen=True, eq=False)
class Collect:
    """Collect something of each batch of an epoch: predictions, embeddings, errors.

    At the end of each evaluation, `state.collected[name]` on every rank has the samples of all
    ranks, in the order of the data, each sample once. Tensors are joined along their first
    dimension, tensors without dimensions to a tensor of one value a batch, and lists to one list.
    In dicts and tuples each part is joined by itself; named tuples and dataclasses become dicts.
    Tensors that differ in another dimension become a list of samples. Any other value becomes a
    list of one value a batch.

    The collected samples stay in memory, and while they are gathered once for each rank: select
    little, or write to files by `predict`.

    Args:
        name: The name of the result in `state.collected`.
        select: Chooses what to collect from the engine's output; by default its prediction and
            target (or `logits` and `labels`), or all of it if it has no such parts.
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
    _: KW_ONLY
    select: Callable[[Any], Any] | None = None
    training: bool = False
    interleaved: bool = True
    device: torch.device | str = "cpu"

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Collect in evaluation, and in training if `training` is True.

        Raises:
            ValueError: Another `Collect` has the same name.
        """
        refuse_overwriting(self, engine.find(Collect), lambda each: (each.name,))
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
        selected = (self.select or prediction_and_target)(state.output)
        state.recall(self, Collected).parts.append(kept(rows_of(selected), self.device))

    def gather(self, state: State[Any, Any]) -> None:
        """Join what all ranks have kept in `state.collected`."""
        rows = state.recall(self, Collected)
        own = rows.joined()
        rows.parts.clear()
        found = [each for each in ranks.gathered(own, group=ranks.data_group()) if each is not None]
        if found:
            state.collected[self.name] = join_parts(found, deal if self.interleaved else chain)


@dataclass
class Collected:
    """The outputs kept so far: for each batch, a mapping or tuple of tensors and lists."""

    parts: list[Any] = field(default_factory=list)

    def joined(self) -> Any:
        """All batches joined; None if there are none."""
        return join_parts(self.parts, chain) if self.parts else None

    def state_dict(self) -> dict[str, Any]:
        """The outputs so far, joined, so that a checkpoint has few tensors."""
        self.parts = [self.joined()] if self.parts else []
        return {"parts": self.parts}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from there."""
        self.parts = list(saved["parts"])
