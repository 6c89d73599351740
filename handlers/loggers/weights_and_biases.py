"""Rows for Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

from ...engine.engine import Engine
from ...engine.events import EventEnum, Trigger
from ..common.media import Histogram, Image, Medium, Text
from .logger import WHEN, attach
from .optional import need
from .png import as_bytes
from .rows import Row
from .writer import Start


@dataclass(frozen=True, eq=False)
class WandB:
    """Write what is new since the last row for Weights & Biases.

    Its id of the run is in the checkpoints, so a run that is resumed goes on as the same run
    there, offline too. A row's step there is its number, which a resumed run counts on from the
    checkpoint: so no row is missing and those that it has already are not taken twice. The curves
    are drawn over `iteration`, which is in each row with the other clocks. A thread writes, and
    whatever goes wrong there costs a warning, not the run.

    Needs `pip install "camshaft[wandb]"`.

    Args:
        project: The project there.
        directory: Where its files go, in a folder `wandb`; made if there is none.
        when: When to write a row, if there is anything new.
        hparams: Hyper-parameters, also nested.
        options: What else `wandb.init` takes: `{"mode": "offline", "entity": ..., "tags": ...}`.

    Raises:
        ModuleNotFoundError: wandb is not installed.
    """

    project: str
    directory: str | os.PathLike[str] = "."
    when: EventEnum | Trigger = WHEN
    hparams: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    background: bool = field(default=True, init=False, repr=False)
    shown: tuple[type[Medium], ...] = field(
        default=(Text, Image, Histogram), init=False, repr=False
    )
    rank: ClassVar[int] = 0

    def __post_init__(self) -> None:
        """See whether wandb is there."""
        need("wandb", "WandB", "wandb")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write rows by the trigger."""
        attach(self, engine)

    def open(self, start: Start) -> WandBRun:
        """Begin a run there, or go on with it."""
        os.makedirs(self.directory, exist_ok=True)
        options = {
            "project": self.project,
            "dir": os.fspath(self.directory),
            "config": dict(self.hparams),
            "id": start.run,
            "resume": "allow" if start.first else None,
            "reinit": "create_new",  # another run of this process is none of ours
        }
        return WandBRun(options | dict(self.options))


class WandBRun:
    """One run of Weights & Biases."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Begin it with what `wandb.init` takes."""
        self._wandb: Any = import_module("wandb")
        self._run: Any = self._wandb.init(**options)
        self._run.define_metric("*", step_metric="iteration")
        self._has: int = self._run.step  # online, what was there before is counted

    def write(self, row: Row) -> None:
        """Log a row, unless it is there."""
        if row.number >= self._has:
            media = {name: self._shown(each) for name, each in row.media.items()}
            self._run.log(row.metrics | media | row.clocks, step=row.number)

    def sync(self) -> None:
        """Nothing: a process of its own writes."""

    def close(self) -> None:
        """End the run there, with all that was logged."""
        self._run.finish()

    def _shown(self, medium: Medium) -> Any:
        if isinstance(medium, Image):
            return self._wandb.Image(as_bytes(medium).numpy(), caption=medium.caption or None)
        if isinstance(medium, Histogram):
            counts, edges = medium.counts.tolist(), medium.edges.tolist()
            return self._wandb.Histogram(np_histogram=(counts, edges))
        assert isinstance(medium, Text)
        return medium.text
