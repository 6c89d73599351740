"""Images: from figures of matplotlib, and as files to look at without any program."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from ...engine import EventEnum, Trigger
from ..common import AT_EACH_ROW, Image, Medium, png
from ..files import make_directory_inside, replacing, safe_name, sweep
from .logger import LogsRows
from .rows import Row, Start, WriterOf


@dataclass(frozen=True, eq=False)
class ImageFiles(LogsRows):
    """Write images to `<directory>/<name>/<iteration>.png`.

    A resumed run writes the same images under the same names again. Each file is there as a whole
    or not at all; none is ever removed. Folders that are links are not followed.

    Args:
        directory: Where the images go; made if there is none.
        when: When to write the images that are new.
    """

    directory: str | os.PathLike[str]
    _: KW_ONLY
    when: EventEnum | Trigger = AT_EACH_ROW
    shown: ClassVar[tuple[type[Medium], ...]] = (Image,)

    def writer(self, start: Start) -> WriterOf:
        """Open nothing: a folder needs no opening."""
        directory, swept = Path(start.folder, self.directory), set[tuple[str, ...]]()

        def write(row: Row) -> None:
            for name, medium in row.media.items():
                if isinstance(medium, Image):
                    parts = tuple(safe_name(part) for part in name.split("/") if part)
                    folder = make_directory_inside(directory, *parts)
                    if parts not in swept:
                        swept.add(parts)
                        sweep(folder, r"\d+\.png")
                    with replacing(folder / f"{row.iteration}.png") as file:
                        file.write(png(medium))

        return WriterOf(write, close=lambda: None)


def figure(drawn: Any, caption: str = "") -> Image:
    """A figure of matplotlib as it looks now, as an image; the figure can be closed afterwards.

    Args:
        drawn: The figure. A figure made by `matplotlib.figure.Figure()` needs no closing.
        caption: What it shows.
    """
    import torch

    agg: Any = import_module("matplotlib.backends.backend_agg")
    shown_on = drawn.canvas
    canvas = agg.FigureCanvasAgg(drawn)  # draws into memory, and takes the figure over
    try:
        canvas.draw()
        pixels = torch.frombuffer(bytearray(canvas.buffer_rgba()), dtype=torch.uint8)
        width, height = canvas.get_width_height(physical=True)
    finally:
        drawn.set_canvas(shown_on)
    return Image(pixels.reshape(height, width, 4).permute(2, 0, 1), caption)
