"""Whether smaller or larger is better, for whatever decides by a metric."""

from __future__ import annotations

import re
from typing import Literal

Mode = Literal["min", "max"]

LARGER_IS_BETTER = {
    *("acc", "accuracy", "auc", "auroc", "bleu", "dice", "f1", "iou", "map", "miou", "precision"),
    *("psnr", "r2", "recall", "rouge", "ssim"),
}


def mode_of(who: str, monitor: str, mode: Mode | None) -> Mode:
    """The mode that was given; "min" without one, but for a metric whose name speaks against it.

    Raises:
        ValueError: It is neither of the two, or it has to be said.

    >>> mode_of("EarlyStopping", "val/loss", None)
    'min'
    """
    if mode is None:
        if LARGER_IS_BETTER.isdisjoint(re.split(r"[^a-z0-9]+", monitor.lower())):
            return "min"
        raise ValueError(
            f"{who}({monitor!r}): a metric of this name is mostly better when it is larger, and "
            "without mode= smaller is better; say which: mode='max' or mode='min'"
        )
    if mode not in ("min", "max"):
        raise ValueError(f"{who}(mode={mode!r}): needs 'min' or 'max'")
    return mode
