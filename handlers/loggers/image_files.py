"""Images as files, to look at without any program for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from ...engine.engine import Engine
from ...engine.events import EventEnum, Trigger
from ..common.media import Image, Medium
from .logger import WHEN, attach
from .png import png
from .rows import Row
from .writer import Start


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Write images to `<directory>/<name>/<iteration>.png`.

    A run that is resumed writes the same images under the same names again. Each file is there
    as a whole or not at all; none is ever removed.

    Args:
        directory: Where they go; made if there is none.
        when: When to write those that are new.
    """

    directory: str | os.PathLike[str]
    when: EventEnum | Trigger = WHEN
    background: bool = field(default=False, init=False, repr=False)
    shown: tuple[type[Medium], ...] = field(default=(Image,), init=False, repr=False)
    rank: ClassVar[int] = 0

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write images by the trigger."""
        attach(self, engine)

    def open(self, start: Start) -> Folder:
        """There is nothing to open."""
        return Folder(Path(self.directory))


class Folder:
    """Where the images of a run go."""

    def __init__(self, path: Path) -> None:
        """Make nothing yet."""
        self._path = path

    def write(self, row: Row) -> None:
        """Write the images of a row."""
        for name, medium in row.media.items():
            if isinstance(medium, Image):
                parts = [quote(part, safe=" ") for part in name.split("/")]
                folder = self._path.joinpath(*(part.replace("..", "%2E%2E") for part in parts))
                folder.mkdir(parents=True, exist_ok=True)
                draft = folder / f"{row.iteration}.png.tmp"
                draft.write_bytes(png(medium))
                draft.replace(folder / f"{row.iteration}.png")

    def sync(self) -> None:
        """Nothing: no run depends on pictures."""

    def close(self) -> None:
        """Nothing is open."""
