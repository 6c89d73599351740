"""The data of a run: each source of `docs/guides/exact-resume.md`, as text."""

from hypothesis import strategies as st

from .triggers import FLAGS, KINDS, SIZES, text

COUNTS = st.integers(6, 23)
"""Samples: enough for a batch on each of two ranks."""
ENDED = st.sampled_from(["stop", "repeat", "others"])
LISTS = st.integers(2, 12)
"""Batches."""
SAMPLERS = st.sampled_from(
    [
        "sampler=Shuffled({n})",
        "sampler=ByEpoch({n})",
        "sampler=Growing({n})",
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
def loaders(draw, workers=""):
    """A `DataLoader` over samples with indices."""
    count = draw(COUNTS)
    dataset = draw(
        st.one_of(
            text("Pairs({n}, noisy={noisy})", n=st.just(count), noisy=FLAGS),
            text("OwnNoise({n}, '{kind}')", n=st.just(count), kind=KINDS),
            text("Counting({n})", n=st.just(count)),
            text(
                "Subset(ConcatDataset([Pairs({n}, True), OwnNoise({n}, '{kind}')]), "
                "[*range(1, 2 * {n}, 2)])",
                n=st.just(count),
                kind=KINDS,
            ),
        )
        if not workers
        else text("Pairs({n}, noisy={noisy})", n=st.just(count), noisy=FLAGS)
    )
    if draw(st.integers(0, 4)) == 4:
        how = f"batch_sampler={draw(BATCH_SAMPLERS)}"
    else:
        drop = ", drop_last=True" if draw(FLAGS) else ""
        how = f"{draw(SIZES)}, {draw(SAMPLERS)}{drop}"
    return f"DataLoader({dataset}, {how}{workers})".format(n=count)


PROCESSES = st.sampled_from(
    [", num_workers=1", ", num_workers=2", ", num_workers=2, persistent_workers=True"]
)
WORKERS = st.one_of(
    PROCESSES.flatmap(loaders),
    text("DataLoader(Stream({n}), {size}{workers})", n=COUNTS, size=SIZES, workers=PROCESSES),
)
"""With processes of their own, which take as long as ten runs without."""
SOURCES = {
    "loader": loaders(),
    "list": text("batches({n})", n=LISTS),
    "stream": text("DataLoader(Stream({n}, noisy={noisy}), {k})", n=COUNTS, noisy=FLAGS, k=SIZES),
    "shuffle buffer": text("DataLoader(Buffered({n}), {size})", n=COUNTS, size=SIZES),
    "texts": text(
        "DataLoader(Texts({n}), batch_sampler=LengthBatches(Texts({n}).lengths, {size}, pool=2), "
        "collate_fn=Padded(0))",
        n=COUNTS,
        size=SIZES,
    ),
    "shards": text(
        "loader(ShardedStream(range({n}), rows, shuffle_buffer={k}), {size}, training=True, "
        "num_workers=0)",
        n=SIZES,
        k=st.integers(1, 4),
        size=SIZES,
    ),
    "dealt": text(
        "loader({samples}, {size}, training=True, num_workers=0)",
        samples=st.sampled_from(
            [
                "SeededSamples(Pairs(13, noisy=True))",
                "Mixture({{'a': Pairs(5), 'b': Pairs(9, True)}}, ended='{ended}', random={flag})",
                "Mixture({{'a': Pairs(7), 'b': Pairs(4)}}, weights={{'a': 1, 'b': 3}}, "
                "ended='repeat', samples=11)",
            ]
        ).flatmap(lambda template: text(template, ended=ENDED, flag=FLAGS)),
        size=SIZES,
    ),
    "iterable": text("Fresh({n})", n=LISTS),
    "own state": text("Cursor({n})", n=LISTS),
    "torchdata": text(
        "StatefulDataLoader(Pairs({n}), {size}, shuffle={flag})", n=COUNTS, size=SIZES, flag=FLAGS
    ),
    "rewinding": text("Rewinding({n})", n=LISTS),
    "iterator": text("iter(batches({n}))", n=LISTS),
    "generator": text("(each for each in batches({n}))", n=LISTS),
    "workers": WORKERS,
}
