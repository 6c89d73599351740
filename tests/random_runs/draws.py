"""What hypothesis draws: a plan of a run, and the moments at which it is left."""

import re

from hypothesis import strategies as st

from .moments import Kill
from .plans import Plan

SOME_SCHEDULE = re.compile(r"LRSchedule\(.*\)$")
COUNTS = st.integers(4, 23)
"""Samples."""


def text(template, **parts):
    """Text with drawn parts."""
    return st.builds(template.format, **parts)


SIZES = st.integers(1, 3)
KINDS = st.sampled_from(["torch", "numpy", "python"])
FLAGS = st.booleans()
DATASETS = st.one_of(
    text("Pairs({n}, noisy={noisy})", n=COUNTS, noisy=FLAGS),
    text("OwnNoise({n}, '{kind}')", n=COUNTS, kind=KINDS),
)
SAMPLERS = st.sampled_from(
    [
        "sampler=Shuffled({n})",
        "sampler=ByEpoch({n})",
        "sampler=DistributedSampler(range({n}), 2, 1)",
        "sampler=RandomSampler(range({n}), True, 9)",
        "sampler=RandomSampler(range({n}), generator=seeded(4))",
        "sampler=WeightedRandomSampler([1.0, 2.0] * 2, 8)",
        "shuffle=True",
        "shuffle=True, generator=seeded(2)",
        "shuffle=False",
    ]
)
BATCH_SAMPLERS = st.sampled_from(
    [
        "RandomBatches({n})",
        "BatchSampler(Shuffled({n}), 2, False)",
        "BatchSampler(ByEpoch({n}), 2, True)",
    ]
)


@st.composite
def loaders(draw):
    """A `DataLoader`; workers are rare, as they take as long as ten runs without."""
    count = draw(COUNTS)
    dataset = draw(DATASETS).replace("(", "(", 1)
    dataset = dataset.split("(")[0] + f"({count}," + dataset.split(",", 1)[1]
    workers = draw(st.integers(0, 99)) // 99 * 2
    end = f", num_workers={workers}" if workers and "OwnNoise" not in dataset else ""
    if draw(st.integers(0, 4)) == 4:
        return f"DataLoader({dataset}, batch_sampler={draw(BATCH_SAMPLERS)}{end})".format(n=count)
    drop = ", drop_last=True" if draw(FLAGS) else ""
    return f"DataLoader({dataset}, {draw(SIZES)}, {draw(SAMPLERS)}{drop}{end})".format(n=count)


LISTS = st.integers(2, 12)
DATA = st.one_of(
    loaders(),
    loaders(),
    text("batches({n})", n=LISTS),
    text("DataLoader(Stream({n}, noisy={noisy}), {size})", n=COUNTS, noisy=FLAGS, size=SIZES),
    text("DataLoader(Buffered({n}), {size})", n=COUNTS, size=SIZES),
    text(
        "DataLoader(Texts({n}), batch_sampler=LengthBatches(Texts({n}).lengths, {size}, pool=2), "
        "collate_fn=Padded(0))",
        n=COUNTS,
        size=SIZES,
    ),
    text("Fresh({n})", n=LISTS),
    text("Cursor({n})", n=LISTS),
    text("Cursor({n})", n=LISTS),
    text("Cursor({n})", n=LISTS),
    text("Cursor({n})", n=LISTS),
    text(
        "StatefulDataLoader(Pairs({n}), {size}, shuffle={flag})", n=COUNTS, size=SIZES, flag=FLAGS
    ),
    text("Rewinding({n})", n=LISTS),
    text("iter(batches({n}))", n=LISTS),
    text("(each for each in batches({n}))", n=LISTS),
)
ENGINES = st.one_of(
    text(
        "supervised({n}, '{kind}', norm={norm})",
        n=SIZES,
        kind=st.sampled_from(["SGD", "Adam"]),
        norm=st.just(False),
    ),
    text("recurrent({n})", n=SIZES),
    text("two({a}, {b}, {every})", a=SIZES, b=SIZES, every=SIZES),
)
CLOCKS = ["ITERATION_COMPLETED", "STEP_COMPLETED", "EPOCH_COMPLETED"]


def clauses(events, most=9):
    """A trigger of one clause."""
    every = st.builds("{}(every={})".format, st.sampled_from(events), st.integers(1, most))
    at = st.builds("{}(at={})".format, st.sampled_from(events), st.integers(1, 12))
    others = st.builds(
        "{}({})".format,
        st.sampled_from(events),
        st.sampled_from(["last=True", "once=True", "after=3", "before=4", "every=3, last=True"]),
    )
    return st.one_of(every, every, at, others, st.sampled_from(events))


def triggers(*events):
    """A trigger of one or two clauses."""
    some = clauses(list(events or CLOCKS))
    return st.one_of(some, st.builds("{} | {}".format, some, some))


ANYWHERE = triggers(
    *CLOCKS, "ITERATION_STARTED", "EPOCH_STARTED", "COMPLETED", "BACKWARD_COMPLETED"
)
SAVES = st.one_of(
    triggers(),
    st.just("ITERATION_COMPLETED | EPOCH_COMPLETED"),
    st.just("ITERATION_COMPLETED | EPOCH_COMPLETED"),
    st.builds("ITERATION_COMPLETED(every={}) | EPOCH_COMPLETED".format, st.integers(1, 3)),
    st.builds("ITERATION_COMPLETED(every={}) | EPOCH_COMPLETED".format, st.integers(3, 9)),
    st.just("EPOCH_COMPLETED(last=True)"),
)
KEEPS = st.sampled_from(
    [
        "latest(2)",
        "latest(1)",
        "latest(3)",
        "best(1, 'loss')",
        "latest(1) | best(2, 'loss')",
        "every(4)",
    ]
)
CHECKPOINTS = text(
    "Checkpoint(place, {when}, {keep}, resume=True, background={background})",
    when=SAVES,
    keep=KEEPS,
    background=st.sampled_from([False, False, True]),
)
SCHEDULES = st.sampled_from(
    ["cosine()", "warmup(0.3).then(cosine(0.1))", "hold(0.5).then(linear(0.2))", "inverse_sqrt(3)"]
)
HANDLERS = st.one_of(
    text("LRSchedule({pieces})", pieces=SCHEDULES),
    text("EMA(0.8, when={when})", when=triggers("STEP_COMPLETED", "EPOCH_COMPLETED")),
    text("SWA(when={when})", when=triggers("EPOCH_COMPLETED")),
    text(
        "EarlyStopping('loss', patience={n}, when={when})",
        n=SIZES,
        when=triggers("ITERATION_COMPLETED"),
    ),
    text("RestoreBest('loss', when={when})", when=triggers("ITERATION_COMPLETED")),
    text("JSONLines(place / 'rows.jsonl', {when})", when=triggers()),
    text("CSV(place / 'rows.csv', {when})", when=triggers()),
    text("History({when})", when=triggers()),
    text("ClipGradNorm({n})", n=st.sampled_from([0.01, 1.0])),
    st.just("GradNorm()"),
    st.just("NonFiniteGuard('skip')"),
    text(
        "SpikeGuard('{how}', deviations=0.5, window=3, steps=3)",
        how=st.sampled_from(["skip", "rewind"]),
    ),
    text(
        "Validate({data}, name='{name}', when={when})",
        data=st.sampled_from(
            [
                "batches(3)",
                "DataLoader(Pairs(7, noisy=True), 3, shuffle=True)",
                "DataLoader(Pairs(5), 2, shuffle=True, generator=seeded(8))",
            ]
        ),
        name=st.sampled_from(["val", "test"]),
        when=triggers("ITERATION_COMPLETED", "EPOCH_COMPLETED"),
    ),
    st.just("Average('loss', weight=1)"),
    text("Draw({when}, '{kind}')", when=ANYWHERE, kind=KINDS),
    text("Draw({when}, '{kind}')", when=ANYWHERE, kind=KINDS),
    text("Tell({when})", when=ANYWHERE),
    text("Tally({when})", when=ANYWHERE),
    text("Slower({when})", when=triggers()),
    text("Stop({when}, '{of}')", when=triggers(), of=st.sampled_from(["run", "epoch", "epoch"])),
    text("Save({when})", when=ANYWHERE),
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
                st.builds("max_epochs={}".format, st.integers(1, 4)),
                st.builds("max_iterations={}".format, st.integers(1, 20)),
                st.builds("max_steps={}, max_iterations=25".format, st.integers(1, 9)),
            )
        )
    )
    return ", ".join(found)


@st.composite
def plans(draw):
    """A run; its checkpoints are somewhere among its handlers."""
    handlers = draw(st.lists(HANDLERS, max_size=6, unique_by=lambda text: text.split("(")[0]))
    place = draw(st.integers(0, len(handlers)))
    handlers.insert(place, draw(CHECKPOINTS))
    data, engine, until = draw(DATA), draw(ENGINES), draw(limits())
    if data.startswith(("iter", "(")) and draw(FLAGS):  # several passes read it on
        until = re.sub("max_batches=.*?, ", "", f"{until}, max_batches=3")
    if not data.startswith("batches"):  # then the steps may not be known
        handlers = [SOME_SCHEDULE.sub("LRSchedule(inverse_sqrt(3))", each) for each in handlers]
    if engine.startswith("two"):  # it judges one loss an update
        handlers = [each for each in handlers if "SpikeGuard" not in each]
    return Plan(data, engine, tuple(handlers), until)


KILLS = st.lists(
    st.one_of(
        st.builds(Kill, st.sampled_from(["call", "SAVING", "interrupt"]), st.integers(0, 999)),
        st.builds(Kill, st.just("EPOCH_COMPLETED"), st.integers(0, 999)),
        st.builds(Kill, st.sampled_from(["EPOCH_COMPLETED", "COMPLETED"]), st.integers(0, 999)),
        st.builds(Kill, st.just("operation"), st.integers(0, 999), FLAGS),
    ),
    min_size=1,
    max_size=3,
)
