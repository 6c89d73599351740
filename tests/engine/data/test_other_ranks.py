"""Passes that go on with other batches, or on other ranks: each sample once, in the same step."""

import logging
import random

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from camshaft import Engine, Events, LengthBatches, SeededSamples, SharedOrder, State

BATCH = 12
"""Samples of a batch over all ranks: 1, 2, 3, 4, 6 or 12 of them share it."""
RANKS = st.sampled_from([1, 2, 3, 4, 6, 12])


def weighted(samples):
    return WeightedRandomSampler([1.0 + number % 5 for number in range(samples)], samples)


def like(samples, size, ranks, rank):
    batches = LengthBatches([number % 7 for number in range(samples)], size, pool=2)
    batches.num_replicas, batches.rank = ranks, rank
    return batches


def by_tokens(samples, ranks, rank, most=50):
    batches = LengthBatches([1 + number % 7 for number in range(samples)], max_tokens=most, pool=2)
    batches.num_replicas, batches.rank = ranks, rank
    return batches


def shared(sampler, ranks, rank):
    return SharedOrder(sampler, num_replicas=ranks, rank=rank, seed=5)


def of(make, **options):
    """Loaders over numbers, on a rank of so many, by a sampler."""

    def loader(samples, size, ranks, rank):
        sampler = make(samples, ranks, rank)
        return DataLoader(range(samples), size // ranks, sampler=sampler, **options)

    return loader


LOADERS = {
    "DistributedSampler": of(lambda n, ranks, rank: DistributedSampler(range(n), ranks, rank)),
    "in order": of(lambda n, ranks, rank: DistributedSampler(range(n), ranks, rank, shuffle=False)),
    "whole batches": of(lambda n, r, rank: DistributedSampler(range(n), r, rank), drop_last=True),
    "as many samples on each rank": of(
        lambda n, r, rank: DistributedSampler(range(n), r, rank, drop_last=True), drop_last=True
    ),
    "weighted": of(lambda n, ranks, rank: shared(weighted(n), ranks, rank)),
    "some samples": of(lambda n, r, rank: shared(SubsetRandomSampler(range(0, n, 2)), r, rank)),
    "of like length": lambda samples, size, ranks, rank: DataLoader(
        range(samples), batch_sampler=like(samples, size, ranks, rank)
    ),
    "by tokens": lambda samples, size, ranks, rank: DataLoader(
        range(samples), batch_sampler=by_tokens(samples, ranks, rank)
    ),
}


def part(loader, saved, stop_at, **arguments):
    """What a rank is handed up to an iteration, and what its checkpoint would hold."""
    seen, state = [], State()
    engine = Engine(lambda state, batch: seen.append((batch.tolist(), state.share)))
    if saved is not None:
        state.load_state_dict(saved)
    if stop_at is not None and stop_at > state.iteration:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.stop("enough", resumable=True))
    engine.run(loader, max_epochs=2, state=state, **arguments)
    return seen, state.state_dict()


def run(make, samples, stages, **arguments):
    """The samples of each step over all ranks, in stages of (ranks, samples a batch, stop)."""
    steps, saved = [], None
    for ranks, size, stop_at in stages:
        before, parts = saved, []
        for rank in range(ranks):
            seen, state = part(make(samples, size, ranks, rank), before, stop_at, **arguments)
            saved = state if rank == 0 else saved
            parts.append(seen)
        for step in zip(*parts, strict=True):
            assert sum(share for _, share in step) == pytest.approx(ranks, abs=1e-12)
            real = [(batch, share) for batch, share in step if share]
            found = [each for batch, _ in real for each in batch]
            assert all(share == len(batch) * ranks / len(found) for batch, share in real)
            steps.append(sorted(found))
    return steps


CUTS = st.lists(st.tuples(RANKS, st.integers(1, 14)), max_size=4)


def stages_of(cuts, last, size=BATCH):
    cuts = sorted(cuts, key=lambda cut: cut[1])
    return [*((ranks, size, stop) for ranks, stop in cuts), (last, size, None)]


@pytest.mark.quick(kind=1)
@pytest.mark.parametrize("kind", ["DistributedSampler", *[*LOADERS][1:]])
@settings(max_examples=20)
@given(samples=st.integers(24, 70), cuts=CUTS, last=RANKS)
def test_on_any_ranks_each_step_has_the_samples_of_the_run_that_nobody_interrupted(
    kind, samples, cuts, last
):
    whole = run(LOADERS[kind], samples, [(1, BATCH, None)])
    assert run(LOADERS[kind], samples, stages_of(cuts, last)) == whole


@pytest.mark.slow
@given(
    samples=st.integers(24, 70),
    cuts=CUTS,
    last=RANKS,
    length=st.integers(1, 9),
    is_virtual=st.booleans(),
)
def test_also_in_epochs_of_a_given_length_and_in_passes_that_are_cut(
    samples, cuts, last, length, is_virtual
):
    arguments = {"epoch_length" if is_virtual else "max_batches": length}
    make = LOADERS["DistributedSampler"]
    whole = run(make, samples, [(1, BATCH, None)], **arguments)
    assert run(make, samples, stages_of(cuts, last), **arguments) == whole


@settings(max_examples=10)
@given(
    samples=st.integers(24, 70),
    first=st.integers(1, 4),
    stages=st.lists(st.tuples(RANKS, st.sampled_from([12, 24, 36])), min_size=2, max_size=4),
)
def test_with_other_batches_each_sample_of_an_epoch_comes_once(samples, first, stages):
    stages = [
        (ranks, size, None if at == len(stages) - 1 else first + at)
        for at, (ranks, size) in enumerate(stages)
    ]
    steps = run(LOADERS["DistributedSampler"], samples, stages)
    # Two epochs: one that was cut, in which each sample comes once, and one after it.
    flat = [each for step in steps for each in step]
    assert sorted(flat[:samples]) == sorted(flat[samples:]) == list(range(samples))


def left_at(loader, stop_at=2):
    return part(loader, None, stop_at)[1]


def test_other_batches_are_told_of_and_the_epoch_has_as_many_as_are_left(caplog):
    make = LOADERS["DistributedSampler"]
    saved = left_at(make(90, 8, 4, 0), 3)
    state = State()
    state.load_state_dict(saved)
    lengths = []
    engine = Engine(lambda state, batch: lengths.append(state.epoch_length))
    with caplog.at_level(logging.WARNING):
        engine.run(make(90, 16, 2, 1), max_epochs=2, state=state)
    assert lengths == [3 + 5] * 5 + [6] * 6  # 66 samples were left
    (record,) = caplog.records
    assert "goes on with 16 samples a batch instead of 8 over all ranks" in record.message
    assert "it has 8 batches, and later ones 6" in record.message
    assert "schedules" in record.message


IN_TURN, AGAIN = range(30), RandomSampler(range(9), num_samples=30)


@pytest.mark.parametrize(
    ("sampler", "other", "left"),
    [
        (IN_TURN, {"batch_size": None, "sampler": IN_TURN}, 18),
        (IN_TURN, {"batch_sampler": BatchSampler(IN_TURN, 6, False)}, 3),
        (AGAIN, {"batch_size": 5, "sampler": AGAIN}, 4),  # more samples than the data set has
    ],
)
def test_what_is_left_is_counted_in_the_batches_that_the_sampler_makes(sampler, other, left):
    data, state, found = range(9) if sampler is AGAIN else range(30), State(), []
    state.load_state_dict(left_at(DataLoader(data, 4, sampler=sampler), 3))
    engine = Engine(lambda state, batch: found.append(state.epoch_length))
    engine.run(DataLoader(data, **other), max_epochs=1, state=state)
    assert found == [3 + left] * left


def test_the_same_batch_on_other_ranks_changes_nothing_that_needs_telling(caplog):
    saved = left_at(LOADERS["DistributedSampler"](90, 8, 4, 0))
    part(LOADERS["DistributedSampler"](90, 8, 2, 0), saved, None)
    assert not caplog.records


def test_samples_that_come_one_by_one_go_on_behind_those_that_all_ranks_have_had():
    def make(ranks, rank):
        sampler = DistributedSampler(range(9), ranks, rank, shuffle=False)
        return DataLoader(torch.arange(9), None, sampler=sampler)

    saved = left_at(make(2, 0), 3)  # 0 and 1, 2 and 3, 4 and 5
    state = State()
    state.load_state_dict(saved)
    seen = []
    Engine(lambda state, one: seen.append(one.item())).run(make(1, 0), max_epochs=1, state=state)
    assert seen == [6, 7, 8]


def test_another_order_is_refused():
    saved = left_at(DataLoader(range(24), 4, sampler=RandomSampler(range(24))))
    with pytest.raises(ValueError, match="drawn by RandomSampler, and DistributedSampler.shuffle"):
        part(LOADERS["DistributedSampler"](24, 4, 2, 0), saved, None)
    saved = left_at(LOADERS["weighted"](24, 4, 2, 0))
    other = shared(SubsetRandomSampler(range(24)), 4, 0)
    with pytest.raises(ValueError, match=r"SharedOrder\(SubsetRandomSampler, seed=5\) draws"):
        part(DataLoader(range(24), 1, sampler=other), saved, None)


def test_what_was_left_in_a_list_of_batches_goes_on_in_a_loader():
    saved = left_at([*torch.arange(8).reshape(4, 2)])
    seen, _ = part(DataLoader(range(8), 2), saved, 4)
    assert [batch for batch, _ in seen] == [[4, 5], [6, 7]]


def test_one_process_in_order_goes_on_on_ranks_in_order():
    saved = left_at(DataLoader(range(24), 4, sampler=SequentialSampler(range(24))))
    seen, _ = part(LOADERS["in order"](24, 4, 2, 1), saved, 4)
    assert [batch for batch, _ in seen] == [[9, 11], [13, 15]]


def test_bucketed_batches_cannot_have_another_size_in_mid_epoch():
    saved = left_at(LOADERS["of like length"](24, 4, 2, 0))
    with pytest.raises(ValueError, match=r"LengthBatches\(.*\) makes other batches of them"):
        part(LOADERS["of like length"](24, 8, 2, 0), saved, None)


def test_another_budget_of_tokens_is_refused_in_mid_epoch_and_so_is_a_size_in_its_place():
    saved = left_at(LOADERS["by tokens"](70, None, 4, 0))
    other = DataLoader(range(70), batch_sampler=by_tokens(70, 2, 0, most=60))
    with pytest.raises(ValueError, match=r"max_tokens=50.* and LengthBatches\(max_tokens=60"):
        part(other, saved, None)
    with pytest.raises(ValueError, match=r"max_tokens=50.* and LengthBatches\(shuffle=True"):
        part(LOADERS["of like length"](70, 8, 2, 0), saved, None)
    saved = left_at(LOADERS["of like length"](70, 8, 2, 0))
    with pytest.raises(ValueError, match=r"LengthBatches\(shuffle=True.* and .*max_tokens=50"):
        part(LOADERS["by tokens"](70, None, 2, 0), saved, None)


def test_seeded_samples_draw_the_same_in_batches_by_tokens():
    def drawn(ranks):
        found = {}
        for rank in range(ranks):
            batches = by_tokens(50, ranks, rank)
            loader = DataLoader(SeededSamples(Noisy(), 1), batch_sampler=batches)

            def note(state, batch):
                pairs = batch.tolist() if state.share else []
                found.update({(state.epoch, index): noise for index, noise in pairs})

            Engine(note).run(loader, max_epochs=2)
        return found

    assert drawn(1) == drawn(3)
    assert len(drawn(1)) == 100


class Stream(IterableDataset):
    """A share of a stream, as ranks cut it."""

    def __init__(self, ranks):
        self.ranks = ranks

    def __iter__(self):
        return iter(torch.arange(0, 24, self.ranks))


class Counted(Stream):
    """A share that knows its length."""

    def __len__(self):
        return 24 // self.ranks


@pytest.mark.parametrize("most", [None, 2])
def test_a_stream_that_was_left_after_an_epochs_last_batch_goes_on_on_other_ranks(most):
    def left(stop_at):
        return part(DataLoader(Counted(4), 2), None, stop_at, max_batches=most)[1]

    ended = []
    for saved in (left(most or 3), left((most or 3) - 1)):
        state, seen = State(), []
        state.load_state_dict(saved)
        state.control.position.dealing.ranks = 4
        engine = Engine(lambda state, batch, seen=seen: seen.append(batch.tolist()))
        engine.on(Events.EPOCH_COMPLETED)(
            lambda state: ended.append((state.epoch, state.iteration))
        )
        if not ended:
            engine.run(DataLoader(Counted(2), 2), max_epochs=2, state=state, max_batches=most)
            whole = [[0, 2], [4, 6], [8, 10], [12, 14], [16, 18], [20, 22]]
            assert seen == whole[:most]  # the second epoch, by the shares of two ranks
            assert ended == [(1, most or 3), (2, 4 if most else 9)]
        else:
            with pytest.raises(ValueError, match=r"on 1 ranks what 4 .* between two epochs"):
                engine.run(DataLoader(Counted(2), 2), max_epochs=2, state=state, max_batches=most)


class Told:
    """Data with a state of its own."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        return (torch.tensor([number]) for number in range(self.at, 9))

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, saved):
        self.at = saved["at"]


def left_by_ranks(data, ranks, stop_at=2):
    saved = left_at(data, stop_at)
    saved["position"]["dealing"]["ranks"] = ranks
    return saved


def iterator():
    return iter([torch.tensor([number]) for number in range(9)])


@pytest.mark.parametrize("make", [lambda: DataLoader(Stream(4), 2), Told, iterator])
def test_what_is_read_in_order_goes_on_on_as_many_ranks_only(make):
    with pytest.raises(ValueError, match="cannot carry on on 1 ranks what 4 ranks have left"):
        part(make(), left_by_ranks(make(), 4), None)
    part(make(), left_by_ranks(make(), 1), None)


def test_unless_it_says_that_its_state_fits():
    saved = left_by_ranks(Told(), 4)
    fitting = Told()
    fitting.fits_any_ranks = True
    part(fitting, saved, None)


def test_an_iterator_over_several_passes_is_not_read_again_by_others():
    saved = left_by_ranks(iterator(), 4)
    saved["in_epoch"] = False
    with pytest.raises(ValueError, match="the iterator is read in order"):
        part(iterator(), saved, None)


def test_a_batch_sampler_that_does_not_tell_how_ranks_share_goes_on_with_a_warning(caplog):
    def make():
        return DataLoader(range(9), batch_sampler=[[0, 1], [2], [3, 4], [5]])

    saved = left_by_ranks(make(), 2)
    with caplog.at_level(logging.WARNING):
        assert [batch for batch, _ in part(make(), saved, 4)[0]] == [[3, 4], [5]]
    (record,) = caplog.records
    assert (
        "goes on on 1 ranks instead of 2, and list does not tell how ranks share" in record.message
    )
    with pytest.raises(ValueError, match="batches 4 -> 8"):
        part(DataLoader(range(9), batch_sampler=[[0]] * 8), saved, None)


class Noisy:
    def __len__(self):
        return 50

    def __getitem__(self, index):
        noise = random.random() + float(numpy.random.rand()) + torch.rand(()).item()
        return torch.tensor([index, noise], dtype=torch.float64)


def noise_on(ranks, size=BATCH, workers=0, cuts=(), seed=1):
    """What each sample draws, by epoch and index, in a run that is cut and goes on elsewhere."""
    found, saved = {}, None
    stages = [*cuts, (ranks, None)]
    for count, stop_at in stages:
        before = saved
        for rank in range(count):
            torch.manual_seed(rank)
            sampler = DistributedSampler(range(50), count, rank)
            loader = DataLoader(
                SeededSamples(Noisy(), seed), size // count, sampler=sampler, num_workers=workers
            )
            seen, state = [], State()
            engine = Engine(
                lambda state, batch, seen=seen: seen.append((state.epoch, state.share, batch))
            )
            if before is not None:
                state.load_state_dict(before)
            if stop_at is not None:
                stop = Events.ITERATION_COMPLETED(at=stop_at)
                engine.on(stop)(lambda state: state.stop("enough", resumable=True))
            engine.run(loader, max_epochs=2, state=state)
            saved = state.state_dict() if rank == 0 else saved
            for epoch, share, batch in seen:
                for index, noise in batch.tolist():
                    if share:
                        assert (epoch, index) not in found
                        found[epoch, index] = noise
    return found


NOISE = noise_on(1)


def test_each_sample_of_each_epoch_draws_numbers_of_its_own():
    assert len(set(NOISE.values())) == len(NOISE) == 100
    assert set(noise_on(1, seed=2).values()).isdisjoint(NOISE.values())


@pytest.mark.slow
@given(RANKS, st.sampled_from([12, 24]), st.lists(st.tuples(RANKS, st.integers(1, 9)), max_size=2))
def test_seeded_samples_draw_the_same_whatever_the_ranks_batches_and_cuts(ranks, size, cuts):
    cuts = sorted(cuts, key=lambda cut: cut[1]) if size == BATCH else []
    assert noise_on(ranks, size, cuts=cuts) == NOISE


def test_and_are_the_same_on_three_ranks_and_then_on_two():
    assert noise_on(2, cuts=[(3, 4)]) == NOISE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_and_whatever_the_workers():
    assert noise_on(2, workers=1) == NOISE


def test_the_generators_of_the_training_do_not_see_it():
    torch.manual_seed(0)
    drawn = []
    loader = DataLoader(SeededSamples(Noisy()), 10, sampler=DistributedSampler(range(50), 1, 0))
    Engine(lambda state, batch: drawn.append(torch.rand(()).item())).run(loader, max_epochs=1)
    torch.manual_seed(0)
    torch.empty((), dtype=torch.int64).random_()  # torch's loader draws a seed as it begins
    assert drawn == [torch.rand(()).item() for _ in range(5)]


def test_where_the_place_of_a_sample_is_not_known_seeded_samples_are_refused():
    inside = torch.utils.data.Subset(SeededSamples(Noisy()), [0, 1])
    with pytest.raises(ValueError, match=r"write SeededSamples\(Subset"):
        part(DataLoader(inside, 1), None, None)


def test_an_evaluation_over_batches_by_tokens_counts_each_sample_once():
    seen, lengths = [], []
    for rank in range(8):
        found = []
        engine = Engine(lambda state, batch, found=found: found.append(batch.tolist()))
        state = engine.evaluate(LOADERS["by tokens"](64, None, 8, rank))
        assert state.epoch_length == len(found)
        lengths.append(len(found))
        seen += sum(found, [])  # noqa: RUF017
    assert sorted(seen) == list(range(64))
    assert lengths[0] > lengths[-1]  # some batches have fewer samples than ranks


def test_an_evaluation_over_batches_of_like_length_counts_each_sample_once():
    seen = []
    for rank in range(4):
        found = []
        engine = Engine(lambda state, batch, found=found: found.extend(batch.tolist()))
        state = engine.evaluate(LOADERS["of like length"](25, 8, 4, rank))
        assert state.epoch_length == (4 if rank == 0 else 3)
        seen += found
    assert sorted(seen) == list(range(25))


def test_without_an_engine_they_are_the_samples_of_the_data_set():
    samples = SeededSamples(Noisy())
    torch.manual_seed(0)
    assert len(samples) == 50
    assert samples[3][1] != samples[3][1]
    assert [int(index) for index, _ in samples.__getitems__([4, 5])] == [4, 5]
