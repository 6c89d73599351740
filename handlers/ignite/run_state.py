"""ignite's `State` of a run of Camshaft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ignite.engine

from ...engine import State


def _same(name: str, ours: str = "") -> Any:
    """An attribute that is read from and written to the state of the run; ignite's are plain."""
    own = ours or name

    def get(self: RunState) -> Any:
        return getattr(self.run, own)

    def put(self: RunState, value: Any) -> None:
        setattr(self.run, own, value)

    return property(get, put)


class RunState(ignite.engine.State):
    """A view of the run under way, or of the last one; attributes of one's own live beside it.

    What a handler writes into `metrics`, `max_epochs`, `max_iters` or `output` is in the run.
    """

    run: State[Any, Any]
    """The state of Camshaft."""

    def __init__(self) -> None:
        self.run = State()
        self.ahead = 0
        """1 while a batch is read that Camshaft has counted, and ignite has not."""
        super().__init__()

    epoch = _same("epoch")
    step = _same("step")
    epoch_length = _same("epoch_length")
    max_epochs = _same("max_epochs")
    max_iters = _same("max_iterations")
    batch = _same("batch")
    output = _same("output")
    iteration: Any = property(
        lambda self: self.run.iteration - self.ahead, lambda self, to: self._count(to)
    )
    metrics: Any = property(lambda self: self.run.metrics, lambda self, to: self._measure(to))
    dataloader: Any = property(lambda self: self.run.control.data, lambda self, to: _refuse(to))

    def _count(self, iteration: int) -> None:
        self.run.iteration = iteration

    def _measure(self, metrics: Mapping[str, Any]) -> None:
        self.run.metrics.clear()
        self.run.metrics.update(metrics)


def _refuse(data: object) -> None:
    if data is not None:
        raise AttributeError("the data of a run cannot be exchanged; pass it to engine.run")
