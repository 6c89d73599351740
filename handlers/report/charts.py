"""Which metrics share a chart, and under which heading it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

TRAINING = ("train", "training")
EVALUATION = ("val", "valid", "validation", "eval", "evaluation", "test")
LEARNING, RATE_AND_PACE, MORE = HEADINGS = ("Learning", "Rate and throughput", "More metrics")
RATE = re.compile(r"(^|/|_)(lr|learning_rate)($|/|_|-|\d)")
RESOURCES = re.compile(
    r"(per_second|_seconds$|seconds/|throughput|memory|mfu|utili[sz]ation|_time$|^time/|gpu|cpu|/s$)",
    re.IGNORECASE,
)


def charts(names: Iterable[str]) -> list[dict[str, Any]]:
    """The charts for metrics of these names: what was trained and what was validated side by side.

    A metric `val/loss` shares a chart with `loss` or `train/loss`; any prefix counts as an
    evaluation whose metrics are there without it too.

    >>> [(each["title"], each["metrics"]) for each in charts(["lr", "loss", "val/loss"])]
    [('loss', ['loss', 'val/loss']), ('lr', ['lr'])]
    """
    known = list(dict.fromkeys(names))
    evaluations = {prefix for name in known if _last(name, prefix := _prefix(name)) in known}
    evaluations = (evaluations | set(EVALUATION) | set(TRAINING)) - {""}
    grouped: dict[str, list[str]] = {}
    for name in known:
        prefix = _prefix(name)
        title = _last(name, prefix) if prefix in evaluations else name
        grouped.setdefault(title, []).append(name)
    drawn: list[dict[str, Any]] = []
    for title, members in grouped.items():
        validated = any(_prefix(name) in evaluations - set(TRAINING) for name in members)
        drawn.append(
            {
                "title": title,
                "heading": _heading(title, validated),
                "metrics": sorted(members, key=lambda name: (_role(name, evaluations), name)),
                "validated": [name for name in members if _role(name, evaluations)],
                "smooth": not RATE.search(title),
            }
        )
    return sorted(
        drawn,
        key=lambda chart: (HEADINGS.index(chart["heading"]), _weight(chart["title"])),
    )


def _heading(title: str, validated: bool) -> str:
    if RATE.search(title) or RESOURCES.search(title):
        return RATE_AND_PACE
    return LEARNING if validated or _is_loss(title) else MORE


def _weight(title: str) -> int:
    """The loss comes before other metrics, the rate before the pace."""
    return 0 if _is_loss(title) or RATE.search(title) else 1


def _is_loss(title: str) -> bool:
    return "loss" in title.split("/")


def _prefix(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def _last(name: str, prefix: str) -> str:
    return name[len(prefix) + 1 :] if prefix else ""


def _role(name: str, evaluations: set[str]) -> int:
    return int(_prefix(name) in evaluations - set(TRAINING))
