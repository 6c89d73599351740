"""The pieces that schedules are made of, one function each."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real

from ...engine.checks import warn
from .schedule import Length, Piece, Schedule

Blend = Callable[[float, float, float], float]
"""The value between two values, by progress from 0 to 1."""
STEEPEST = 10
"""The largest power of a polynomial."""
LIKE_GAMMA = 0.9
"""From here on, a final factor is like the `gamma` of torch's ExponentialLR, a factor a step."""


def warmup(length: Length, *, start: float = 0.0) -> Schedule:
    """Go up to 1 in a straight line, which is reached at step `length` exactly.

    Goyal and others, 2017: Accurate, Large Minibatch SGD.
    """
    return _between(_line, _text("warmup", length, start=(start, 0.0)), 1.0, length, start)


def hold(length: Length = None) -> Schedule:
    """Stay at the end value of the piece before; as the last piece, a cool-down."""

    def value(begin: float, done: float, length: int | None) -> float:
        return begin

    return Schedule((Piece(_text("hold", length=(length, None)), length, value, is_endless=True),))


def linear(final: float = 0.0, *, length: Length = None, start: float | None = None) -> Schedule:
    """Go to `final` in a straight line: b + (f - b) t, from b to f as t goes from 0 to 1."""
    return _between(_line, _of("linear", final, length, start), final, length, start)


def cosine(final: float = 0.0, *, length: Length = None, start: float | None = None) -> Schedule:
    """Go to `final` by half a cosine: f + (b - f) (1 + cos(pi t)) / 2.

    Loshchilov and Hutter, 2017: SGDR, Stochastic Gradient Descent with Warm Restarts.
    """
    return _between(_cosine, _of("cosine", final, length, start), final, length, start)


def polynomial(power: float, *, final: float = 0.0, length: Length = None) -> Schedule:
    """Go to `final` by a power of the remaining progress: f + (b - f) (1 - t)^power."""
    if not 0 < power <= STEEPEST:
        raise ValueError(
            f"polynomial(power={power!r}): needs a number above 0 and at most {STEEPEST}, of which "
            "half of the way leaves a thousandth; a length is polynomial(2.0, length=...)"
        )
    text = _text("polynomial", power, final=(final, 0.0), length=(length, None))
    return _between(lambda b, f, t: f + (b - f) * (1 - t) ** power, text, final, length)


def exponential(final: float, *, length: Length = None) -> Schedule:
    """Go to `final` by a constant factor a step: b (f / b)^t; `final` is above 0."""
    text = _text("exponential", _factor("exponential", final), length=(length, None))
    if LIKE_GAMMA <= final < 1:
        warn(
            f"{text}: ends at {final} of the value after its whole length; to multiply by {final} "
            f"in each step, give LRSchedule(partial(ExponentialLR, gamma={final}))"
        )
    return _between(lambda b, f, t: b * (f / b) ** t, text, _above_0(text, final), length)


def sqrt(final: float = 0.0, *, length: Length = None) -> Schedule:
    """Go to `final` by the square root, fast at first.

    f + (b - f) (1 - sqrt(t)), from b to f as t goes from 0 to 1.
    Haegele and others, 2024: Scaling Laws and Compute-Optimal Training Beyond Fixed Training
    Durations.
    """
    text = _of("sqrt", final, length)
    return _between(lambda b, f, t: f + (b - f) * (1 - math.sqrt(t)), text, final, length)


def inverse(final: float, *, length: Length = None) -> Schedule:
    """Go to `final` so that 1 / factor is a straight line: 1 / ((1 - t) / b + t / f).

    Wen and others, 2024: Understanding Warmup-Stable-Decay Learning Rates. `final` is above 0.
    """
    text = _text("inverse", _factor("inverse", final), length=(length, None))
    return _between(lambda b, f, t: 1 / ((1 - t) / b + t / f), text, _above_0(text, final), length)


def curve(function: Callable[[float], float], length: Length = None) -> Schedule:
    """Multiply by a function of progress, which goes from 0 to 1 over the piece.

    A checkpoint compares the function by its name only.
    """

    def value(begin: float, done: float, length: int | None) -> float:
        return begin * function(done / length if length else 1.0)

    name = getattr(function, "__name__", type(function).__name__)
    text = f"curve({name})" if length is None else f"curve({name}, {length!r})"
    return Schedule((Piece(text, length, value),))


def restarts(
    cycle: int, *, final: float = 0.0, cycle_mul: float = 1.0, lr_mul: float = 1.0
) -> Schedule:
    """Cosines from 1 to `final`, again and again; each cycle is longer and lower than the last.

    Cycle i has `cycle * cycle_mul^i` steps, rounded, and is multiplied by `lr_mul^i`, its final
    value too. Loshchilov and Hutter, 2017: SGDR.
    """
    others = {"final": (final, 0.0), "cycle_mul": (cycle_mul, 1.0), "lr_mul": (lr_mul, 1.0)}
    text = _text("restarts", cycle, **others)
    if type(cycle) is not int or cycle < 1 or cycle_mul < 1:
        raise ValueError(f"{text}: needs a whole number of steps a cycle, and cycle_mul from 1")

    def value(begin: float, done: float, length: int | None) -> float:
        number, size, is_end = 0, cycle, done == length
        while done > size or (done == size and not is_end):
            number, done = number + 1, done - size
            size = round(cycle * cycle_mul**number)
        return lr_mul**number * (final if done == size else _cosine(begin, final, done / size))

    return Schedule((Piece(text, None, value, is_endless=True),))


def inverse_sqrt(warmup_steps: int, *, start: float = 0.0) -> Schedule:
    """Warm up for w steps, then fall by the square root of the steps: sqrt(w / step).

    Vaswani and others, 2017: Attention Is All You Need; in units of the highest rate.
    """
    text = _text("inverse_sqrt", warmup_steps, start=(start, 0.0))
    if type(warmup_steps) is not int or warmup_steps < 1:
        raise ValueError(f"{text}: needs a whole number of steps, from 1")

    def value(begin: float, done: float, _: int | None) -> float:
        if done < warmup_steps:
            return _line(start, begin, done / warmup_steps)
        return begin * math.sqrt(warmup_steps / done)

    return Schedule((Piece(text, None, value, is_endless=True),))


def noam(d_model: int, *, warmup_steps: int) -> Schedule:
    """The schedule of the Transformer: d^-0.5 min(n^-0.5, n w^-1.5) at step n, from 1.

    To be used with a learning rate of about 1. Without a warm-up, w = 0, it is (d n)^-0.5.
    Vaswani and others, 2017: Attention Is All You Need.
    """
    text = f"noam({d_model}, warmup_steps={warmup_steps})"
    if d_model <= 0 or warmup_steps < 0:
        raise ValueError(f"{text}: needs the width of the model, from 1, and steps from 0")

    def value(begin: float, done: float, _: int | None) -> float:
        step = done + 1
        rising = step * warmup_steps**-1.5 if warmup_steps else math.inf
        return float(begin * d_model**-0.5 * min(step**-0.5, rising))

    return Schedule((Piece(text, None, value, is_endless=True),))


def tri_stage(
    warmup_length: Length = 0.1,
    *,
    hold_length: Length = 0.4,
    decay_length: Length = 0.5,
    start: float = 0.01,
    final: float = 0.01,
) -> Schedule:
    """Warm up, hold, and decay exponentially.

    Park and others, 2019: SpecAugment.
    """
    decay = exponential(final, length=decay_length)
    return warmup(warmup_length, start=start).then(hold(hold_length)).then(decay)


DECAYS: dict[str, Callable[..., Schedule]] = {
    "sqrt": sqrt,
    "linear": linear,
    "cosine": cosine,
    "inverse": inverse,
    "exponential": exponential,
}


def warmup_stable_decay(
    warmup_length: Length, *, decay_length: Length, decay: str = "sqrt", final: float = 0.0
) -> Schedule:
    """Warm up, hold for most of the run, and decay in the last `decay_length` steps of it.

    Hu and others, 2024: MiniCPM; the decay by the square root is of Haegele and others, 2024.
    """
    if decay not in DECAYS:
        raise ValueError(f"decay={decay!r}: needs one of {', '.join(DECAYS)}")
    return warmup(warmup_length).then(hold()).then(DECAYS[decay](final, length=decay_length))


def _between(
    blend: Blend, text: str, final: float, length: Length, start: float | None = None
) -> Schedule:
    """A piece that begins and ends with exactly these values."""
    if not isinstance(final, Real):
        raise TypeError(
            f"a schedule that ends at a {type(final).__name__}: needs a number; what LRSchedule "
            "takes is made by a call, as in LRSchedule(cosine())"
        )

    def value(begin: float, done: float, length: int | None) -> float:
        begin = begin if start is None else start
        if not length or done >= length:
            return final
        return begin if done == 0 else blend(begin, final, done / length)

    return Schedule((Piece(text, length, value),))


def _line(begin: float, final: float, progress: float) -> float:
    return begin + (final - begin) * progress


def _cosine(begin: float, final: float, progress: float) -> float:
    return final + (begin - final) * (1 + math.cos(math.pi * progress)) / 2


def _above_0(text: str, final: float) -> float:
    if not final > 0:
        raise ValueError(f"{text}: needs a final factor above 0; to end at 0, use linear or sqrt")
    return final


def _of(name: str, final: float, length: Length, start: float | None = None) -> str:
    return _text(name, _factor(name, final), length=(length, None), start=(start, None))


def _factor(name: str, final: float) -> float:
    """Refuse what was meant as a length, which comes first in `warmup` and `hold`."""
    if isinstance(final, int) and final > 1:
        raise ValueError(
            f"{name}({final}): goes to {final} times the value; for a length of {final} write "
            f"{name}(..., length={final}), and for this factor {name}({final}.0)"
        )
    return final


def _text(name: str, *first: object, **others: tuple[object, object]) -> str:
    """A call as one writes it, without arguments that have their default value."""
    given = [repr(each) for each in first]
    given += [f"{key}={each!r}" for key, (each, default) in others.items() if each != default]
    return f"{name}({', '.join(given)})"
