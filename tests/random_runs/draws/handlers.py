"""The handlers of a run, as text."""

from hypothesis import strategies as st

from .triggers import ANYWHERE, KINDS, SIZES, text, triggers

SAVES = st.one_of(
    triggers(),
    st.just("ITERATION_COMPLETED | EPOCH_COMPLETED"),
    st.builds("ITERATION_COMPLETED(every={}) | EPOCH_COMPLETED".format, st.integers(1, 9)),
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
IN_BACKGROUND = st.sampled_from([False, False, True])


def checkpoints(saves=SAVES):
    """The handler that saves."""
    return text(
        "Checkpoint(place, when={when}, keep={keep}, resume=True, background={background})",
        when=saves,
        keep=KEEPS,
        background=IN_BACKGROUND,
    )


MADE = st.sampled_from(
    [
        "partial(StepLR, step_size=2, gamma=0.5)",
        "partial(CosineAnnealingWarmRestarts, T_0=3, T_mult=2)",
        "partial(ExponentialLR, gamma=0.9)",
        "partial(CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=3, cycle_momentum=False)",
        "lambda optimizer: SequentialLR(optimizer, [ConstantLR(optimizer, 0.5, 2), "
        "ExponentialLR(optimizer, 0.9)], [2])",
    ]
)
"""Schedules of torch, made when the run starts."""
ONES_OF_THE_RUN = st.one_of(
    text(
        "LRSchedule({pieces})",
        pieces=st.sampled_from(
            [
                *("cosine()", "warmup(0.3).then(cosine(0.1))", "hold(0.5).then(linear(0.2))"),
                "inverse_sqrt(3)",
            ]
        ),
    ),
    text("LRSchedule({made}, when={when})", made=MADE, when=triggers("STEP_COMPLETED")),
    text("LRSchedule({made}, when={when})", made=MADE, when=triggers("EPOCH_COMPLETED")),
    text(
        "LRSchedule(partial(ReduceLROnPlateau, patience=1), metric='loss', when={when}, "
        "allow_stale=True)",
        when=triggers("ITERATION_COMPLETED"),
    ),
    text("EMA(0.8, when={when})", when=triggers("STEP_COMPLETED", "EPOCH_COMPLETED")),
    text("SWA(when={when})", when=triggers("EPOCH_COMPLETED")),
    text(
        "EarlyStopping('loss', patience={n}, when={when})",
        n=SIZES,
        when=triggers("ITERATION_COMPLETED"),
    ),
    text("RestoreBest('loss', when={when})", when=triggers("ITERATION_COMPLETED")),
    text("Freeze('*bias*', until={until})", until=triggers("STEP_COMPLETED", "EPOCH_COMPLETED")),
    st.just("ClipGradValue(0.05)"),
    text("ClipGradNorm({n})", n=st.sampled_from([0.01, 1.0])),
    st.just("GradNorm()"),
    st.just("NonFiniteGuard('skip')"),
    text(
        "SpikeGuard({how}, deviations=0.5, window=3, limit=1000)",
        how=st.sampled_from(["'skip'", "'rewind', steps=3"]),
    ),
)
ONES_THAT_MEASURE = st.one_of(
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
    text(
        "Judged(batches(3), {when}, weights={weights})",
        when=triggers("ITERATION_COMPLETED", "EPOCH_COMPLETED"),
        weights=st.sampled_from([None, "'judged_ema'"]),
    ),
    st.just("Average('loss', weight=1)"),
    text(
        "Metrics({{'measured': {metric}}}, select=loss_of)",
        metric=st.sampled_from(
            ["MeanMetric('ignore')", "RunningMean(3, nan_strategy='ignore')", "CatMetric('ignore')"]
        ),
    ),
    text("JSONLines(place / 'rows.jsonl', when={when})", when=triggers()),
    text("CSV(place / 'rows.csv', when={when})", when=triggers()),
    text("History({when})", when=triggers()),
    text(
        "Export(place / 'weights', when={when}, keep={keep}, background={background})",
        when=triggers(),
        keep=KEEPS,
        background=IN_BACKGROUND,
    ),
    st.just("Journal(place)"),
)
ONES_OF_THE_SCRIPT = st.one_of(
    text("Draw({when}, '{kind}')", when=ANYWHERE, kind=KINDS),
    text("Draw({when}, '{kind}')", when=ANYWHERE, kind=KINDS),
    text("Tell({when})", when=ANYWHERE),
    text("Tally({when})", when=ANYWHERE),
    text("Keep({when})", when=ANYWHERE),
    text("Toggle({when})", when=triggers("STEP_COMPLETED", "EPOCH_COMPLETED")),
    text("Slower({when})", when=triggers()),
    text("Stop({when}, '{of}')", when=triggers(), of=st.sampled_from(["run", "epoch", "epoch"])),
    text("Save({when})", when=ANYWHERE),
)
HANDLERS = st.one_of(ONES_OF_THE_RUN, ONES_THAT_MEASURE, ONES_OF_THE_SCRIPT)
