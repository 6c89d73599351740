"""Images: as PNG, from figures of matplotlib, and as files to look at without any program."""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...engine import EventEnum, Trigger
from ..common import AT_EACH_ROW, Image, Medium
from ..files import make_directory_inside, replacing, safe_name, sweep
from .logger import LogsRows
from .rows import Row, Start, WriterOf

if TYPE_CHECKING:
    from torch import Tensor

COLOURS = {1: 0, 3: 2, 4: 6}  # grey, red green blue, and these with an alpha channel
BYTE = 255


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
        swept = set[tuple[str, ...]]()

        def write(row: Row) -> None:
            for name, medium in row.media.items():
                if isinstance(medium, Image):
                    parts = tuple(safe_name(part) for part in name.split("/") if part)
                    folder = make_directory_inside(Path(self.directory), *parts)
                    if parts not in swept:
                        swept.add(parts)
                        sweep(folder, r"\d+\.png")
                    with replacing(folder / f"{row.iteration}.png") as file:
                        file.write(png(medium))

        return WriterOf(write, close=lambda: None)


def png(image: Image) -> bytes:
    """The image as the content of a PNG file, 8 bits a channel.

    See the specification, W3C Portable Network Graphics: each line of pixels is preceded by the
    number of its filter, here 0 for none. The caption is its description.
    """
    pixels = as_bytes(image)
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + line.numpy().tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, COLOURS[channels], 0, 0, 0)
    said = b"Description\0\0\0\0\0" + image.caption.encode(errors="replace")
    caption = ((b"iTXt", said),) if image.caption else ()
    chunks = ((b"IHDR", head), *caption, (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*each) for each in chunks)


def as_bytes(image: Image) -> Tensor:
    """The pixels as uint8 of shape (height, width, channels); NaN becomes 0."""
    import torch

    pixels: Any = image.pixels.cpu().permute(1, 2, 0)
    if pixels.dtype != torch.uint8:
        pixels = (pixels.float().nan_to_num(0).clamp(0, 1) * BYTE).round().to(torch.uint8)
    laid_out: Tensor = pixels.contiguous()
    return laid_out


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


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
