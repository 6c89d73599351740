"""ignite's `State` of a run of Camshaft."""

from __future__ import annotations

from typing import Any

import ignite.engine

from ...engine import State


def _same(name: str, ours: str = "") -> property:
    """An attribute that is read from and written to the state of the run."""
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

    @property
    def iteration(self) -> int:
        """The calls of the process function."""
        return self.run.iteration - self.ahead

    @iteration.setter
    def iteration(self, value: int) -> None:
        self.run.iteration = value

    @property
    def metrics(self) -> Any:
        """The metrics of the run: what is written here, loggers and `EarlyStopping` find."""
        return self.run.metrics

    @metrics.setter
    def metrics(self, values: Any) -> None:
        self.run.metrics.clear()
        self.run.metrics.update(values)

    @property
    def dataloader(self) -> Any:
        """The data that the run reads."""
        return self.run.control.data

    @dataloader.setter
    def dataloader(self, value: Any) -> None:
        if value is not None:
            raise AttributeError("the data of a run cannot be exchanged; pass it to engine.run")
