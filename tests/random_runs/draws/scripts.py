"""Whole scripts, and the moments at which their runs are left."""

import re

from hypothesis import strategies as st

from ..moments import Kill
from ..plans import Plan
from ..steps import OTHERS
from .data import SOURCES, WORKERS
from .handlers import HANDLERS, checkpoints
from .triggers import FLAGS, SIZES, text

SOME_SCHEDULE = re.compile(r"LRSchedule\(.*\)$")
ENGINES = st.one_of(
    text("supervised({n}, '{kind}')", n=SIZES, kind=st.sampled_from(["SGD", "Adam"])),
    text("supervised({n}, '{kind}')", n=SIZES, kind=st.sampled_from([*OTHERS])),
    text(
        "supervised({n}, precision='{how}', split={split})",
        n=SIZES,
        how=st.sampled_from(["fp32", "bf16"]),
        split=st.sampled_from([None, 2]),
    ),
    text("scaled({n}, '{kind}')", n=SIZES, kind=st.sampled_from(["SGD", "NAdam"])),
    text("recurrent({n})", n=SIZES),
    text("recurrent({n}, broken=({first}, {then}))", n=SIZES, first=SIZES, then=st.integers(4, 9)),
    text("two({a}, {b}, {every})", a=SIZES, b=SIZES, every=SIZES),
)
PARTS = st.integers(0, 999)
"""Thousandths of the moments of a whole run."""


def kills_at(*kinds):
    """A kill before a handler of one of these events, or at another kind of moment."""
    return st.builds(Kill, st.sampled_from(kinds), PARTS)


KILLS = st.one_of(
    kills_at("call", "SAVING", "interrupt"),
    kills_at("EPOCH_COMPLETED", "COMPLETED"),
    st.builds(Kill, st.just("operation"), PARTS, FLAGS),
)


@st.composite
def limits(draw):
    """How long to run, in epochs of the data or in virtual ones."""
    found = []
    if draw(st.integers(0, 2)):
        found.append(f"epoch_length={draw(st.integers(1, 17))}")
    if draw(st.integers(0, 5)) == 5:
        found.append(f"max_batches={draw(st.integers(1, 6))}")
    found.append(
        draw(
            st.one_of(
                text("max_epochs={n}", n=st.integers(1, 4)),
                text("max_iterations={n}", n=st.integers(1, 20)),
                text("max_steps={n}, max_iterations=25", n=st.integers(1, 9)),
            )
        )
    )
    return ", ".join(found)


@st.composite
def plans(draw, source, saving, until, engines=ENGINES):
    """A run; its checkpoints are somewhere among its handlers."""
    handlers = draw(st.lists(HANDLERS, max_size=6, unique_by=lambda text: text.split("(")[0]))
    place = draw(st.integers(0, len(handlers)))
    handlers.insert(place, saving)
    data, engine = draw(source), draw(engines)
    if data.startswith(("iter", "(")) and draw(FLAGS):  # several passes read it on
        until = re.sub("max_batches=.*?, ", "", f"{until}, max_batches=3")
    if not data.startswith("batches"):  # then the steps may not be known
        handlers = [SOME_SCHEDULE.sub("LRSchedule(inverse_sqrt(3))", each) for each in handlers]
    if "broken" in engine:
        handlers = [each for each in handlers if "NonFiniteGuard" not in each]
        handlers.append("NonFiniteGuard('skip')")
    if engine.startswith("two") or "broken" in engine:  # it judges one loss an update, a finite one
        handlers = [each for each in handlers if "SpikeGuard" not in each]
    return Plan(data, engine, tuple(handlers), until)


@st.composite
def anywhere(draw, source):
    """A run of any kind, left anywhere."""
    plan = draw(plans(source, draw(checkpoints()), draw(limits())))
    return plan, draw(st.lists(KILLS, min_size=1, max_size=3))


@st.composite
def between_saves(draw, source):
    """A run that saves twice where an epoch ends, real or virtual, and is left between the two."""
    length = draw(st.integers(1, 17))
    is_virtual = draw(FLAGS)
    clock = f"ITERATION_COMPLETED(every={length})" if is_virtual else "ITERATION_COMPLETED"
    saving = draw(checkpoints(st.just(f"{clock} | EPOCH_COMPLETED")))
    until = f"epoch_length={length}, " * is_virtual + f"max_epochs={draw(st.integers(2, 4))}"
    kills = [draw(kills_at("EPOCH_COMPLETED")), *draw(st.lists(KILLS, max_size=2))]
    return draw(plans(source, saving, until)), kills


@st.composite
def while_windows_are_open(draw, source):
    """A run that is asked to end where windows of two updates overlap, up to an epoch's end."""
    several = st.integers(2, 3)
    engines = text("two({a}, {b}, {every})", a=several, b=several, every=several)
    saving = draw(checkpoints(st.just("ITERATION_COMPLETED | EPOCH_COMPLETED")))
    until = draw(st.sampled_from(["max_epochs=3", "max_iterations=17"]))
    kills = [draw(kills_at("interrupt")), *draw(st.lists(KILLS, max_size=2))]
    return draw(plans(source, saving, until, engines)), kills


def scripts(source=None):
    """A plan of a run and its kills, of each family in equal parts.

    Without a `source`, all have equal parts, except for workers, which are rare.
    """
    if source is None:
        usual = st.sampled_from([each for each in SOURCES.values() if each is not WORKERS])
        rare = st.integers(0, 99).map(lambda number: number == 99)
        source = rare.flatmap(lambda is_rare: WORKERS if is_rare else usual.flatmap(lambda s: s))
    return st.one_of(anywhere(source), between_saves(source), while_windows_are_open(source))
