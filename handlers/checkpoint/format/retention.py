"""Which checkpoints are kept: claims, the checkpoints they claim, and claims as text."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, Literal

from ....engine import listed
from ...common import Mode, mode_of
from ...files import budget
from .manifest import LARGEST_COUNT, Manifest

Clock = Literal["iterations", "steps", "epochs"]
CLOCKS = {"iterations": "iteration", "steps": "step", "epochs": "epoch"}


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest `count`."""

    count: int

    def chosen(self, saved: Sequence[Manifest]) -> Iterable[Manifest]:
        """The last ones; `saved` is in the order of writing."""
        return saved[-self.count :]


@dataclass(frozen=True, slots=True)
class Best:
    """The best `count` by a metric."""

    count: int
    metric: str
    mode: Mode

    def chosen(self, saved: Sequence[Manifest]) -> Iterable[Manifest]:
        """The best ones; fewer if fewer have a score."""
        return self.ranking(saved)[: self.count]

    def ranking(self, saved: Sequence[Manifest]) -> list[Manifest]:
        """All with a score, the best first; of equal scores, the earlier first.

        A measurement counts once, for the first save after it: later saves hold other weights.
        """
        sign = 1 if self.mode == "min" else -1
        scores: dict[object, tuple[float, Manifest]] = {}
        for each in saved:
            score = sign * each.score(self.metric)
            written = each.written.get(self.metric, object())
            if not math.isnan(score):
                scores.setdefault((written, score), (score, each))
        return [each for _, each in sorted(scores.values(), key=lambda pair: pair[0])]

    def unknown(self, directory: Path, saved: Iterable[Manifest]) -> ValueError:
        """The error that none of these checkpoints has the metric."""
        own = {n for each in saved for n in each.metrics if not math.isnan(each.score(n))}
        return ValueError(
            f"no checkpoint in {directory} has the metric {self.metric!r}; they have: {listed(own)}"
        )


@dataclass(frozen=True, slots=True)
class Every:
    """The first at or after each multiple of `count`."""

    count: int
    clock: Clock

    def chosen(self, saved: Sequence[Manifest]) -> Iterable[Manifest]:
        """The first one at or after each multiple above 0."""
        first: dict[int, Manifest] = {}
        for each in saved:
            first.setdefault(getattr(each, CLOCKS[self.clock]) // self.count, each)
        return [each for stretch, each in first.items() if stretch > 0]


@dataclass(frozen=True, slots=True)
class Keep:
    """Claims, made by `latest`, `best` and `every` and combined with `|`.

    >>> latest(2) | best(1, "val/loss")
    best(1, 'val/loss', mode='min') | latest(2)
    """

    claims: frozenset[Latest | Best | Every]

    @classmethod
    def of(cls, text: str) -> Keep:
        """The claims that a text says, such as a manifest's; only names and literals are allowed.

        Raises:
            ValueError: The text is anything else; the message says what it should be.

        >>> Keep.of("latest(2) | best(1, 'val/loss')")
        best(1, 'val/loss', mode='min') | latest(2)
        """
        try:
            if len(text) > LONGEST:
                raise ValueError(f"it has {len(text)} characters")
            claims = _joined(ast.parse(text.strip(), mode="eval").body)
            if len(claims) > budget.MOST_CLAIMS:
                raise ValueError(f"it has {len(claims)} claims")
            return reduce(or_, map(_claim, claims))
        except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(
                f"keep={text[:80]!r} is made of something else than latest(...), best(...), "
                f"every(...) and |, as in \"latest(2) | best(1, 'val/loss')\": {error}"
            ) from error

    def __or__(self, other: Keep) -> Keep:
        return Keep(self.claims | other.claims)

    @property
    def bests(self) -> list[Best]:
        """The claims by a metric."""
        return [claim for claim in self.claims if isinstance(claim, Best)]

    def kept(self, saved: Iterable[Manifest]) -> dict[int, list[str]]:
        """The numbers of the checkpoints to keep, with their claims; the newest always stays."""
        saved = list(saved)
        newest: dict[int, list[str]] = {number: [] for number in latest(1).claimed(saved)}
        return newest | self.claimed(saved)

    def claimed(self, saved: Iterable[Manifest]) -> dict[int, list[str]]:
        """The numbers of the claimed checkpoints, with the claims on each.

        Of several checkpoints of one iteration, only the last one written counts.
        """
        by_iteration: dict[int, Manifest] = {}
        for each in sorted(saved, key=lambda each: each.number):
            by_iteration[each.iteration] = each
        current = sorted(by_iteration.values(), key=lambda each: each.number)
        claimed: dict[int, list[str]] = {}
        for claim in sorted(self.claims, key=_written):
            for each in claim.chosen(current):
                claimed.setdefault(each.number, []).append(_written(claim))
        return claimed

    def __repr__(self) -> str:
        return " | ".join(sorted(map(_written, self.claims)))


def latest(count: int = 1) -> Keep:
    """Keep the newest checkpoints, by when they were written."""
    return Keep(frozenset([Latest(_at_least_one("latest", count))]))


def best(count: int, metric: str, mode: Mode | None = None) -> Keep:
    """Keep the best checkpoints by a metric, such as `"val/loss"`.

    NaN is never best, nor is a checkpoint that was written before there was such a metric. Of
    equal ones the earlier stays. Scores lie in the checkpoints, so they survive a resume.

    Args:
        count: How many.
        metric: The name of a metric that is one number.
        mode: `"min"` if smaller is better, `"max"` if larger is; it has to be said for a name such
            as `"val/accuracy"`.
    """
    if not isinstance(metric, str):
        raise TypeError(f"best({count}, {metric!r}): needs the name of a metric")
    # A count of NumPy's would put the name of its class into the text of the claim.
    claim = Best(_at_least_one("best", count), str.__str__(metric), mode_of("best", metric, mode))
    return Keep(frozenset([claim]))


def every(count: int, clock: Clock = "iterations") -> Keep:
    """Keep, for good, the first checkpoint at or after each multiple of `count`.

    Args:
        count: The distance between kept checkpoints.
        clock: What is counted: `"iterations"`, `"steps"` or whole `"epochs"`.
    """
    if clock not in CLOCKS:
        raise ValueError(f"every(clock={clock!r}): needs one of {', '.join(map(repr, CLOCKS))}")
    return Keep(frozenset([Every(_at_least_one("every", count), clock)]))


def _at_least_one(name: str, count: object) -> int:
    if type(count) is not int:
        raise TypeError(f"{name}({count!r}): needs a whole number")
    if count < 1:
        raise ValueError(f"{name}({count}): needs a number from 1")
    if count > LARGEST_COUNT:
        raise ValueError(f"{name}(...): needs a number up to {LARGEST_COUNT}")
    return int(count)


def _written(claim: Latest | Best | Every) -> str:
    match claim:
        case Latest(count):
            return f"latest({count})"
        case Best(count, metric, mode):
            return f"best({count}, {metric!r}, mode={mode!r})"
        case Every(count, clock):
            return f"every({count}, {clock!r})"


CLAIMS: dict[str, Callable[..., Keep]] = {"latest": latest, "best": best, "every": every}
LONGEST = 10_000
"""Characters of a text of claims: Python's parser would take long over a longer one."""


def _joined(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_joined(node.left), *_joined(node.right)]
    return [node]


def _claim(node: ast.expr) -> Keep:
    if not (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLAIMS
    ):
        raise ValueError(f"{ast.unparse(node)!r} is none of {', '.join(CLAIMS)}")
    values = [ast.literal_eval(each) for each in node.args]
    named: dict[str, Any] = {}
    for each in node.keywords:
        if each.arg is None:
            raise ValueError("** has no place here")
        named[each.arg] = ast.literal_eval(each.value)
    return CLAIMS[node.func.id](*values, **named)
