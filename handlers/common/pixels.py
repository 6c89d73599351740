"""Images as bytes, and as files in the format PNG."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

from .media import Image

if TYPE_CHECKING:
    from torch import Tensor

COLOURS = {1: 0, 3: 2, 4: 6}  # grey, red green blue, and these with an alpha channel
BYTE = 255


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


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
