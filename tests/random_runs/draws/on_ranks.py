"""Scripts on two ranks: data that are dealt out, or of each rank's own; DDP and FSDP2."""

from hypothesis import strategies as st

from ..on_ranks import RANKS, Leave, PlanOnRanks
from ..steps import OTHERS
from .data import SOURCES
from .handlers import KINDS, checkpoints
from .scripts import KILLS, kills_at, limits, plans
from .triggers import ANYWHERE, FLAGS, SIZES, text, triggers

# On sharded weights, the steps of torch's Rprop and Adafactor fail, and LBFGS is refused.
OPTIMIZERS = ["SGD", "Adam", *sorted({*OTHERS} - {"Rprop", "Adafactor", "LBFGS"})]

COUNTS = st.integers(8, 23)
SAMPLER = st.sampled_from(["Shuffled({n})", "ByEpoch({n})", "RandomSampler(range({n}), True, 9)"])
SHARED = "SharedOrder({sampler}, num_replicas=W, rank=R)"
DEALT = st.sampled_from(
    [
        "loader(Pairs({n}, {flag}), {k}, training=True, num_workers=0)",
        "loader(Counting({n}), {k}, training=True, num_workers=0, sampler={sampler})",
        "loader(ShardedStream(range(2 * {k}), rows, shuffle_buffer={k}), 4, training=True, "
        "num_workers=0)",
        "DataLoader(OwnNoise({n}, 'numpy'), {k}, "
        "sampler=DistributedSampler(range({n}), W, R, {flag}))",
        f"DataLoader(Pairs({{n}}), {{k}}, sampler={SHARED})",
        "StatefulDataLoader(Pairs({n}), {k}, sampler=DistributedSampler(range({n}), W, R))",
    ]
)
OWN = st.sampled_from(
    [
        *("batches({n} + {more} * R)", "iter(batches({n} + R))", "Fresh({n} - {more} * R)"),
        *("Cursor({n} + R)", "Rewinding({n} + R)", "(each for each in batches({n}))"),
        "DataLoader(Stream({n} + {more} * R, noisy={flag}), {k})",
        "DataLoader(Buffered({n} + R), {k})",
        "DataLoader(Pairs({n} + R, {flag}), {k}, sampler=Shuffled({n} + R, seed=R))",
        "StatefulDataLoader(Pairs({n} + {more} * R), {k}, shuffle=True)",
    ]
)
"""Of different lengths on the ranks."""


@st.composite
def sources(draw):
    """Data of a rank."""
    found = {"n": draw(COUNTS), "k": draw(st.sampled_from([2, 4])), "flag": draw(FLAGS)}
    if draw(FLAGS):
        return draw(OWN).format(more=draw(SIZES), **found)
    sampler = draw(SAMPLER).format(**found)
    dealt = text(draw(DEALT), sampler=st.just(sampler), **{n: st.just(v) for n, v in found.items()})
    return draw(st.one_of(dealt, SOURCES["dealt"].filter(lambda data: ", 2," in data)))


ENGINES = st.one_of(
    text("supervised({n}, '{kind}')", n=SIZES, kind=st.sampled_from(OPTIMIZERS)),
    text("supervised({n}, precision='bf16')", n=SIZES),
    text("scaled({n})", n=SIZES),
    text("two({a}, {b}, {every})", a=SIZES, b=SIZES, every=SIZES),
)
ON_ONE = text(
    "on_rank({rank}, {handler})",
    rank=st.integers(0, RANKS - 1),
    handler=st.one_of(
        text("Draw({when}, '{kind}')", when=ANYWHERE, kind=KINDS),
        text("Tally({when})", when=ANYWHERE),
        st.just("Save(STARTED)"),  # each time, since STARTED counts the starts of the script
        text("Save({when})", when=triggers("EPOCH_COMPLETED", "COMPLETED")),
        text("Stop({when})", when=triggers("EPOCH_COMPLETED")),
    ),
)
"""What one rank alone does, remembers or asks for."""
SAVES = st.sampled_from(["ITERATION_COMPLETED", "STEP_COMPLETED(every=2)", "EPOCH_COMPLETED"])
ON_ALL = st.just(tuple(range(RANKS)))
ON_SOME = st.sampled_from([(0,), (1,)])
LEAVES = st.one_of(
    st.builds(Leave, st.just("kill"), KILLS.filter(lambda kill: kill.at != "interrupt"), ON_SOME),
    st.builds(Leave, st.just("raise"), kills_at("call", "SAVING"), st.one_of(ON_ALL, ON_SOME)),
    st.builds(Leave, st.just("interrupt"), kills_at("interrupt"), ON_ALL),
)


@st.composite
def scripts_on_ranks(draw):
    """A plan of a run on ranks, and where it is left."""
    saving = draw(st.one_of(checkpoints(), checkpoints(SAVES), checkpoints(SAVES)))
    plan = draw(plans(sources(), saving, draw(limits()), ENGINES))
    # What DDP has not seen frozen would be waited for.
    handlers = [each for each in plan.handlers if not each.startswith("Toggle")]
    handlers += draw(st.lists(ON_ONE, max_size=2, unique_by=lambda text: text.split("(")[1]))
    options = draw(st.sampled_from(["", "", "shard='1'"]))
    if not options and any(each.startswith("Freeze") for each in handlers):
        options = "find_unused_parameters=True"
    found = PlanOnRanks(plan.data, plan.engine, tuple(handlers), plan.limits, options)
    return found, draw(st.lists(LEAVES, min_size=1, max_size=3))
