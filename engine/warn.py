"""Warnings that name the line of the script."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = (str(ROOT / "engine"), str(ROOT / "handlers"), "<string>")  # a dataclass's __init__


def warn(message: str) -> None:
    """Warn of what the author of a script did, at the line of the script that called Camshaft."""
    frame, level = sys._getframe(1), 2  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ROOMS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
