"""Schedules as values: pieces in sequence, each beginning at the end value of the one before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

Length = int | float | None
Value = Callable[[float, float, int | None], float]
"""The factor by the piece's first value, the steps since its begin, and its length."""


@dataclass(frozen=True)
class Piece:
    """A part of a schedule; pieces with the same text and length are equal."""

    text: str
    length: Length
    """Steps, as an int; a fraction of the run, as a float; None for the rest of the run."""
    value: Value = field(compare=False, repr=False)
    is_endless: bool = False
    """True if the value does not depend on the piece's length."""

    def __post_init__(self) -> None:
        length = self.length
        if length is None or (type(length) is int and length >= 0):
            return
        if isinstance(length, float) and 0 <= length <= 1:
            return
        raise ValueError(
            f"{self.text}: {length!r} is no length; it needs a number of steps, such as 1000, a "
            "fraction of the run, such as 0.1, or None for what the other pieces leave of the run"
        )


@dataclass(frozen=True)
class Schedule:
    """A factor for each step of a run: pieces joined in sequence.

    The factor multiplies the value that the optimizer was given, so 1 is the full learning rate.
    The factor at 0 is for the first step. A piece begins at the end value of the one before.

    >>> from camshaft.handlers.schedules import cosine, warmup
    >>> schedule = warmup(2).then(cosine(final=0.1))
    >>> schedule
    warmup(2).then(cosine(0.1))
    >>> [round(factor, 3) for factor in schedule.factors(6)]
    [0.0, 0.5, 1.0, 0.868, 0.55, 0.232]
    """

    pieces: tuple[Piece, ...]

    def __post_init__(self) -> None:
        if [piece.length for piece in self.pieces].count(None) > 1:
            raise ValueError(
                f"{self!r}: two pieces take what is left of the run; give all but one a length"
            )

    def then(self, other: Schedule) -> Schedule:
        """This schedule, and the other one from where it ends."""
        if not isinstance(other, Schedule):
            raise TypeError(f"then({other!r}): needs a schedule, such as cosine()")
        return Schedule(self.pieces + other.pieces)

    @property
    def needs_total(self) -> bool:
        """True if the schedule depends on the length of the run."""
        *others, last = self.pieces
        if any(not isinstance(piece.length, int) for piece in others):
            return True
        return not (isinstance(last.length, int) or (last.length is None and last.is_endless))

    def plan(self, total: int | None = None) -> Plan:
        """The schedule over a run of `total` steps; None is enough if all lengths are steps.

        Raises:
            ValueError: The pieces are longer than the run.
        """
        if total is None and self.needs_total:
            raise ValueError(f"{self!r} depends on how long the run is: plan(total)")
        begins, joints = [1.0], self._joints(total)
        for piece, (start, end) in zip(self.pieces, pairwise(joints), strict=False):
            begins.append(piece.value(begins[-1], end - start, end - start))
        return Plan(self.pieces, joints, tuple(begins), total)

    def factors(self, total: int) -> list[float]:
        """The factor of each step of a run of `total` steps: to look at, or to plot."""
        plan = self.plan(total)
        return [plan(step) for step in range(total)]

    def _joints(self, total: int | None) -> tuple[int, ...]:
        """The step at which each piece begins, and the end of the last one, if it has an end."""
        lengths: list[float | None] = [
            piece.length * (total or 0) if isinstance(piece.length, float) else piece.length
            for piece in self.pieces
        ]
        taken = sum(length for length in lengths if length is not None)
        if total is not None and round(taken) > total and self.needs_total:
            raise ValueError(
                f"{self!r} takes {round(taken)} steps, and the run has {total}; a length between 0 "
                "and 1 is a share of the run, as in warmup(0.1)"
            )
        joints, place = [0], 0.0
        for length in lengths:
            if length is None and total is None:
                break
            place += total - taken if length is None and total is not None else length or 0
            joints.append(round(place))
        return tuple(joints)

    def __repr__(self) -> str:
        first, *others = (piece.text for piece in self.pieces)
        return first + "".join(f".then({each})" for each in others)


@dataclass(frozen=True)
class Plan:
    """A schedule over a run of known length: the factor by the number of steps performed.

    It is a function that torch's `LambdaLR` takes.
    """

    pieces: tuple[Piece, ...]
    joints: tuple[int, ...]
    """The step at which each piece begins, from 0, and the end of the last one, if it has one."""
    begins: tuple[float, ...]
    """The factor at each joint."""
    total: int | None

    def __call__(self, step: float) -> float:
        """The factor of the next step after `step` performed steps, or at a place between two."""
        number = max(n for n in range(len(self.pieces)) if self.joints[n] <= step)
        start, end = self.joints[number], None
        if number + 1 < len(self.joints):
            end = self.joints[number + 1]
            step = min(step, end)  # after its end a schedule stays at its last value
        length = None if end is None else end - start
        return self.pieces[number].value(self.begins[number], step - start, length)
