"""Figures of matplotlib as images."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..common.media import Image


def figure(drawn: Any, caption: str = "") -> Image:
    """A figure of matplotlib's as it looks now, as an image; it can be closed afterwards.

    Args:
        drawn: The figure. Made by `matplotlib.figure.Figure()` rather than by pyplot it needs no
            closing.
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
