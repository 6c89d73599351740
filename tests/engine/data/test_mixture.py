"""Mixtures of data sets: their shares, what each source gives, and going on in them."""

import json
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

from camshaft import Engine, Events, Mixture, SharedOrder, State, loader

SOURCES = {"web": range(70), "code": range(100, 130), "math": range(200, 207)}
WEIGHTS = {"web": 0.5, "code": 0.3, "math": 0.2}
ENDS = ["stop", "repeat", "others"]


def drawn(mixture, epoch=0):
    """The samples of an epoch, in their order."""
    mixture.set_epoch(epoch)
    return [mixture.data[index] for index in mixture]


def of(name, samples):
    return [each for each in samples if each in SOURCES[name]]


@settings(max_examples=40)
@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=8),
    st.integers(1000, 1200),
    st.integers(0, 3),
)
def test_every_prefix_has_the_exact_shares_to_within_one_sample(weights, samples, epoch):
    sources = {str(number): [number] * 5 for number in range(len(weights))}
    given = {name: weights[int(name)] for name in sources}
    mixture = Mixture(sources, weights=given, ended="repeat", samples=samples)
    found = [0] * len(weights)
    for place, source in enumerate(drawn(mixture, epoch), 1):
        found[source] += 1
        for weight, count in zip(weights, found, strict=True):
            assert abs(count - weight / sum(weights) * place) < 1
    assert len(mixture) == samples == sum(found)


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("ended", ENDS)
def test_each_source_goes_on_where_it_was_and_is_shuffled_in_each_pass_of_its_own(ended, random):
    mixture = Mixture(SOURCES, weights=WEIGHTS, ended=ended, random=random)
    epochs = [drawn(mixture, epoch) for epoch in range(20)]
    assert all(len(epoch) == len(mixture) for epoch in epochs)
    for name, samples in SOURCES.items():
        read = of(name, [each for epoch in epochs for each in epoch])
        size = len(samples)
        passes = [read[at : at + size] for at in range(0, len(read) - size + 1, size)]
        assert len(passes) > 1
        assert all(sorted(each) == list(samples) for each in passes)
        assert passes[0] != passes[1]
        assert len({len(of(name, epoch)) for epoch in epochs}) == 1
    assert drawn(mixture, 7) == epochs[7]  # by its number alone, whatever was drawn before
    assert drawn(Mixture(SOURCES, weights=WEIGHTS, seed=1), 7) != epochs[7]


@pytest.mark.parametrize("random", [False, True])
def test_when_a_source_ends_the_epoch_stops_or_repeats_it_or_goes_on_with_the_others(random):
    def counts(ended, **options):
        mixture = Mixture(SOURCES, weights=WEIGHTS, ended=ended, random=random, **options)
        return [len(of(name, drawn(mixture))) for name in SOURCES]

    stopped = counts("stop")
    assert stopped[2] == 7
    assert sum(stopped) == 34
    assert counts("repeat")[0] == 70
    assert counts("repeat")[2] == 28
    assert counts("repeat", samples=200) == [100, 60, 40]
    assert counts("others") == [70, 30, 7]
    tail = drawn(Mixture(SOURCES, weights=WEIGHTS, ended="others", random=random))[34:]
    assert not of("math", tail)
    head = tail[:40]
    assert random or len(of("code", head)) == 15  # 0.3 / 0.8 of 40


def test_at_random_the_shares_of_an_epoch_stay_and_the_order_is_another_one_each_epoch():
    mixture = Mixture(SOURCES, weights=WEIGHTS, ended="repeat", samples=100, random=True)
    orders = [["web" if each < 70 else "other" for each in drawn(mixture, n)] for n in (0, 1)]
    assert orders[0] != orders[1]
    assert [Counter(order) for order in orders] == [{"web": 50, "other": 50}] * 2


def test_a_temperature_makes_the_weights_of_the_sizes():
    def weights(**options):
        return Mixture({"a": range(16), "b": range(64)}, **options).weights

    assert weights() == weights(temperature=1) == (0.2, 0.8)
    assert weights(temperature=2) == pytest.approx([1 / 3, 2 / 3])
    assert weights(temperature=1e9) == pytest.approx([0.5, 0.5])


def test_the_order_of_the_names_means_nothing():
    turned = dict(reversed(SOURCES.items()))
    assert drawn(Mixture(turned, weights=WEIGHTS)) == drawn(Mixture(SOURCES, weights=WEIGHTS))


@pytest.mark.parametrize(
    ("ended", "workers"),
    [
        *((each, 0) for each in ENDS),
        *(pytest.param(each, 2, marks=pytest.mark.soak) for each in ENDS),
    ],
)
def test_a_run_left_anywhere_and_carried_on_in_a_new_process_sees_the_same(ended, workers, seen_in):
    def make():
        mixture = Mixture(SOURCES, weights=WEIGHTS, ended=ended, seed=4)
        return loader(mixture, 16, training=True, num_workers=workers)

    whole = seen_in(make)
    mixture = Mixture(SOURCES, weights=WEIGHTS, ended=ended, seed=4)
    by_hand = [each for epoch in range(3) for each in drawn(mixture, epoch)]
    assert [each for batch, *_ in whole for each in batch] == by_hand
    for stop in range(1, len(whole)):
        assert seen_in(make, [stop]) == whole, stop
    assert seen_in(make, [1, 3, len(whole) - 1], epoch_length=3) == seen_in(make, epoch_length=3)


def part(mixture, ranks, rank, saved, stop_at):
    """What a rank is handed up to an iteration, and what its checkpoint would hold."""
    seen, state = [], State()
    order = SharedOrder(mixture, num_replicas=ranks, rank=rank)
    engine = Engine(lambda state, batch: seen.append(batch.tolist() if state.share else []))
    if saved is not None:
        state.load_state_dict(saved)
    if stop_at is not None:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.stop("enough", resumable=True))
    engine.run(DataLoader(mixture.data, 12 // ranks, sampler=order), max_epochs=3, state=state)
    return seen, state.state_dict()


def run(stages, **options):
    """The samples of each step over all ranks, in stages of (ranks, stop)."""
    steps, saved = [], None
    for ranks, stop_at in stages:
        mixture = Mixture(SOURCES, weights=WEIGHTS, **options)
        parts = [part(mixture, ranks, rank, saved, stop_at) for rank in range(ranks)]
        saved = parts[0][1]
        found = zip(*(seen for seen, _ in parts), strict=True)
        steps += [sorted(each for batch in step for each in batch) for step in found]
    return steps


RANKS = st.sampled_from([1, 2, 3, 4])


@settings(max_examples=20)
@given(st.sampled_from(ENDS), st.booleans(), RANKS, RANKS, st.integers(1, 8))
def test_on_any_ranks_each_step_has_the_samples_of_one_process(ended, random, first, then, stop):
    options = {"ended": ended, "random": random}
    assert run([(first, stop), (then, None)], **options) == run([(1, None)], **options)


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"random": True}, {"ended": "repeat", "samples": 34}, {"weights": None}]
)
def test_another_mixture_is_refused_inside_an_epoch(other):
    saved = part(Mixture(SOURCES, weights=WEIGHTS), 1, 0, None, 2)[1]
    with pytest.raises(ValueError, match=r"by SharedOrder\(Mixture\(code: 0.3 of 30, .* another"):
        part(Mixture(SOURCES, **({"weights": WEIGHTS} | other)), 2, 0, saved, None)


KILLED = """
import json, os, signal, sys
from pathlib import Path
from camshaft import Engine, Events, Mixture, loader, ranks
from camshaft.handlers import Checkpoint

directory, stage, kill_at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sources = {"web": range(70), "code": range(100, 130), "math": range(200, 207)}
weights = {"web": 0.5, "code": 0.3, "math": 0.2}

with ranks.process_group():
    file = open(directory / f"{stage}-{ranks.rank()}.jsonl", "w")

    def step(state, batch):
        print(json.dumps([state.iteration, batch.tolist()]), file=file, flush=True)

    engine = Engine(step)
    when = Events.ITERATION_COMPLETED
    engine.add(Checkpoint(directory / "run", when=when, background=False, resume=True))
    if kill_at:
        engine.on(Events.ITERATION_STARTED(at=kill_at))(
            lambda state: os.kill(os.getpid(), signal.SIGKILL)
        )
    mixture = Mixture(sources, weights=weights, seed=2)
    engine.run(loader(mixture, 8, training=True, num_workers=0), max_epochs=4)
"""


def test_killed_on_two_ranks_and_carried_on_by_one_it_is_the_run_of_one(processes, tmp_path):
    processes.run_ranks(2, KILLED, tmp_path, "killed", 8, code=-9)
    processes.run(KILLED, tmp_path, "resumed", 0)
    steps = {}
    for name in ("killed-0", "killed-1", "resumed-0"):
        for line in (tmp_path / f"{name}.jsonl").read_text().splitlines():
            iteration, batch = json.loads(line)
            steps.setdefault(iteration, []).extend(batch)
    mixture = Mixture(SOURCES, weights=WEIGHTS, seed=2)
    whole = [list(each) for n in range(4) for each in torch.tensor(drawn(mixture, n)).split(8)]
    assert [sorted(steps[n]) for n in sorted(steps)] == [sorted(map(int, each)) for each in whole]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


A, B = range(5), range(9)


@pytest.mark.parametrize(
    ("sources", "options", "error", "says"),
    [
        ({}, {}, ValueError, "has no source"),
        ({"a": A, "b": []}, {}, ValueError, "source 'b' is empty: leave it out"),
        ({"a": Stream()}, {}, TypeError, "'a' is a Stream without indices or length: give a Data"),
        ({"a": iter(A)}, {}, TypeError, "'a' is a range_iterator without indices"),
        ({"a": A}, {"weights": {"a": 1, "c": 1}}, ValueError, "weights of a, c, and the sources"),
        ({"a": A, "b": B}, {"weights": {"a": 1}}, ValueError, "give one weight for each"),
        ({"a": A}, {"weights": {"a": 0}}, ValueError, "each has to be above 0, and"),
        ({"a": A, "b": B}, {"weights": {"a": 1e308, "b": 1e308}}, ValueError, "sum finite"),
        ({"a": A}, {"seed": None}, TypeError, "seed=None: needs a whole number"),
        ({"a": A}, {"seed": 1.5}, TypeError, "seed=1.5: needs a whole number"),
        ({"a": A}, {"weights": {"a": float("nan")}}, ValueError, "each has to be above 0"),
        ({"a": A}, {"weights": {"a": 1}, "temperature": 2}, ValueError, "give one"),
        ({"a": A}, {"temperature": 0}, ValueError, "temperature=0: needs a number above 0"),
        ({"a": A}, {"ended": "go on"}, ValueError, "needs one of 'stop', 'repeat', 'others'"),
        ({"a": A}, {"samples": 3}, ValueError, 'needs ended="repeat"; for shorter epochs'),
        ({"a": A}, {"samples": 0, "ended": "repeat"}, ValueError, "from 1"),
        (
            {"a": A, "b": B},
            {"weights": {"a": 1, "b": 0.001}},
            ValueError,
            "source 'b' gives no sample in an epoch of 5: give it more weight, or make epochs",
        ),
    ],
)
def test_what_makes_no_mixture_is_refused(sources, options, error, says):
    with pytest.raises(error, match=says):
        Mixture(sources, **options)


def test_a_loader_refuses_what_a_mixture_cannot_be_and_no_loader_takes_it_for_plain_data():
    mixture = Mixture(SOURCES, weights=WEIGHTS)
    with pytest.raises(ValueError, match="evaluate each source by itself"):
        loader(mixture, 4, training=False)
    for options in ({"seed": 1}, {"sampler": mixture}):
        with pytest.raises(ValueError, match="by a seed of its own"):
            loader(mixture, 4, training=True, **options)
    for of in (
        lambda: loader(mixture.data, 4, training=True, sampler=mixture, seed=1),
        lambda: SharedOrder(mixture, seed=1),
    ):
        with pytest.raises(ValueError, match="seed=1 would do nothing: .* Mixture.*, seed=1"):
            of()
    with pytest.raises(TypeError, match="not subscriptable"):
        next(iter(DataLoader(mixture, 4)))


def test_a_mixture_in_the_place_of_a_loader_is_refused():
    mixture = Mixture({"a": range(4), "b": range(4, 8)})
    with pytest.raises(TypeError, match=r"is a Mixture, which gives indices; write loader\("):
        Engine(lambda state, batch: None).run(mixture, max_epochs=1)


def test_a_slice_of_a_tensor_dataset_is_refused_since_it_would_be_two_samples():
    sliced = torch.utils.data.TensorDataset(torch.ones(9, 2), torch.ones(9))[:4]
    with pytest.raises(TypeError, match=r"'a' is a tuple of tensors.*Subset\("):
        Mixture({"a": sliced})


@pytest.mark.parametrize("given", [{"sources": [range(3)]}, {"weights": [0.7, 0.3]}])
def test_sources_and_weights_without_names_are_refused(given):
    with pytest.raises(TypeError, match="sources and weights need names"):
        Mixture(**{"sources": {"a": range(3), "b": range(2)}, **given})


def test_weights_are_not_set_in_mid_run_since_the_place_in_each_source_follows_from_them():
    mixture = Mixture({"a": range(16), "b": range(64)}, weights={"a": 3, "b": 1})
    assert mixture.weights == (0.75, 0.25)
    with pytest.raises(AttributeError, match="weights"):
        mixture.weights = [0.5, 0.5]
