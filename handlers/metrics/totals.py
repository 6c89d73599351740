"""Totals over a whole run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from torch import Tensor

from ...engine import COUNTS, Engine, EventEnum, Events, Stage, State, Trigger, ranks, samples_of
from ..common import AT_EACH_ROW, refuse_overwriting


@dataclass(frozen=True, eq=False)
class Totals:
    """Count what a run has seen: samples, tokens, or whatever else its batches hold.

    The sums over all ranks become the metrics `"total/<name>"`. They are never reset: a resumed
    run goes on counting. Tensors that the functions return stay on their device until a sum is
    written.

    Args:
        counts: By name, functions of the batch that return a number, or `count_tokens` and
            `count_next_tokens`, which count in the output of `supervised`; by default `"samples"`,
            the length of its first tensor.
        when: When to write; by default when loggers write a row.

    Raises:
        TypeError: One of `counts` cannot be called.

    >>> engine = Engine(lambda state, batch: None, Totals({"samples": len}))
    >>> engine.run([[1, 2], [3]], max_epochs=2).metrics
    {'total/samples': 6}
    """

    counts: Mapping[str, Callable[[Any], Any]] = field(
        default_factory=lambda: {"samples": _samples}
    )
    _: KW_ONLY
    when: EventEnum | Trigger = AT_EACH_ROW

    def __post_init__(self) -> None:
        for name, count in dict(self.counts).items():
            if not callable(count):
                raise TypeError(
                    f"Totals got {count!r} as {name!r}; it needs functions of the batch: "
                    "Totals({'samples': lambda batch: len(batch[0])})"
                )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Count each batch; write when the trigger fires.

        Raises:
            ValueError: Another `Totals` has one of the names.
        """
        refuse_overwriting(self, engine.find(Totals), lambda each: each.counts)
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.add)
        engine.on(self.when, stage=Stage.MEASURE)(self.write)

    def add(self, state: State[Any, Any]) -> None:
        """Count one batch, unless another rank counts its sample."""
        if state.share == 0:
            return
        sums = state.recall(self, dict[str, Any])
        for name, count in self.counts.items():
            number = count(state.output if count in COUNTS else state.batch)
            sums[name] = sums.get(name, 0) + (
                number.detach() if isinstance(number, Tensor) else number
            )

    def write(self, state: State[Any, Any]) -> None:
        """Write the totals of all ranks, by one question to them."""
        if all(state.metrics.is_fresh(f"total/{name}") for name in self.counts):
            return  # at the end of an epoch or of the run, behind the row of its last iteration
        own = dict(state.recall(self, dict[str, Any]))
        if ranks.is_distributed():
            numbers = {
                n: each.item() if isinstance(each, Tensor) else each for n, each in own.items()
            }
            own = ranks.summed(numbers, group=ranks.data_group())
        for name in self.counts:
            state.metrics[f"total/{name}"] = own.get(name, 0)


def _samples(batch: Any) -> int:
    if (count := samples_of({"target": batch})) is not None:
        return count
    raise TypeError(
        f"Totals got a batch that is a {type(batch).__name__} without tensors; give it a function "
        "that counts samples: Totals({'samples': len})"
    )
