"""What the loggers for trackers have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from ....engine import Engine, EventEnum, Trigger
from ....engine.modules import untouched
from ...common import AT_EACH_ROW, Histogram, Image, Medium, Text, as_bytes, need, plain
from ...loggers import LogsRows, Row

Form = TypeVar("Form")
Forms = Mapping[type[Medium], Callable[[Any, Any], Any]]
"""By kind of medium: converts a medium for the client, given the client's module."""


@dataclass(frozen=True, eq=False)
class LogsToTracker(LogsRows):
    """A logger that hands rows to the client of a tracker, by a thread."""

    project: str
    """The project in the tracker."""
    when: EventEnum | Trigger = field(default=AT_EACH_ROW, kw_only=True)
    """When to write a row, if there is anything new."""
    hparams: Mapping[str, Any] = field(default_factory=dict[str, Any], kw_only=True)
    """Hyper-parameters, also nested."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], kw_only=True)
    """More arguments of the client."""
    background = True
    library: ClassVar[str]
    """The client's module."""
    extra: ClassVar[str]
    """What to install: `pip install "camshaft[<extra>]"`."""

    def __post_init__(self) -> None:
        need(self.library, type(self).__name__, self.extra)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Import the client, and write rows by the trigger."""
        import_early(self.library)
        super().attach(engine)

    @property
    def config(self) -> dict[str, Any]:
        """The hyper-parameters as plain values."""
        values: dict[str, Any] = plain(self.hparams)
        return values

    def arguments(self, **ours: Any) -> dict[str, Any]:
        """The arguments of the client: ours, and the user's, which take precedence."""
        return {**ours, **self.options}


def import_early(library: str) -> None:
    """Import a client before any thread of a tracker runs.

    Threads that import at the same time may find each other's modules half made: Python then gives
    up an import (`_DeadlockError`), and that tracker got no rows. And comet_ml 3.58 draws from
    Python's generator when it is imported.
    """
    with suppress(Exception), untouched({}, None):  # the thread warns of an error
        import_module(library)


def numbers_of(row: Row) -> dict[str, float]:
    """The metrics and clocks of a row at its iteration, which is the step of most trackers."""
    return row.metrics | {name: n for name, n in row.clocks.items() if name != "iteration"}


def form_of(medium: Medium, forms: Mapping[type[Medium], Form]) -> Form:
    """What a table says of the kind of a medium."""
    return next(form for kind, form in forms.items() if isinstance(medium, kind))


def formed(row: Row, client: Any, forms: Forms) -> dict[str, Any]:
    """The media of a row as the client takes them, by name."""
    return {name: form_of(each, forms)(client, each) for name, each in row.media.items()}


def pixels_of(image: Image) -> Any:
    """The pixels as a NumPy array of bytes: (height, width, channels)."""
    return as_bytes(image).numpy()


def _image(client: Any, image: Image) -> Any:
    return client.Image(pixels_of(image), caption=image.caption or None)


def _histogram(client: Any, histogram: Histogram) -> Any:
    counts, edges = histogram.counts.tolist(), histogram.edges.tolist()
    return client.Histogram(np_histogram=(counts, edges))


USUAL: Forms = {
    Text: lambda client, text: text.text,
    Image: _image,
    Histogram: _histogram,
}
"""The forms of W&B's client, and of those with the same names."""
