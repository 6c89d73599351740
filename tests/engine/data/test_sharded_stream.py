"""A stream over shards: each sample once, on any ranks and workers, from wherever it was left."""

import random
from collections import Counter

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from camshaft import Engine, Events, ShardedStream, State, loader
from camshaft.engine.data import source_of

SIZES = [5, 0, 11, 1, 8, 8, 3, 16, 2, 7]
IDS = [(shard, place) for shard, size in enumerate(SIZES) for place in range(size)]


def read(shard):
    """The samples of a shard; each draws from all generators."""
    for place in range(SIZES[shard]):
        noise = random.random() + numpy.random.rand() + torch.rand(()).item()
        yield torch.tensor([shard, place, noise], dtype=torch.float64)


def seeking(shard, start):
    for place in range(start, SIZES[shard]):
        noise = random.random() + numpy.random.rand() + torch.rand(()).item()
        yield torch.tensor([shard, place, noise], dtype=torch.float64)


def stream(of=read, shards=range(len(SIZES)), **options):
    return ShardedStream(shards, of, **{"shuffle_buffer": 12, "seed": 3} | options)


def ids(batch):
    return [(int(shard), int(place)) for shard, place, *_ in batch.tolist()]


def part(data, saved=None, stop_at=None, epochs=1, batches=None):
    """The samples of a part of a run, and the state in which it is left."""
    seen, state = [] if batches is None else batches, State()
    engine = Engine(lambda state, batch: seen.append((state.epoch, ids(batch), batch.tolist())))
    if saved is not None:
        state.load_state_dict(saved)
    if stop_at is not None:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.stop("enough", resumable=True))
    engine.run(data, max_epochs=epochs, state=state)
    return seen, state.state_dict()


def flat(seen, epoch=1):
    return [each for at, batch, _ in seen if at == epoch for each in batch]


@pytest.mark.quick(of=1, options=1)
@pytest.mark.parametrize("of", [read, seeking])
@pytest.mark.parametrize("options", [{}, {"shuffle_buffer": 0}, {"open_shards": 1}])
def test_a_run_left_anywhere_and_carried_on_in_a_new_process_sees_the_same(of, options, seen_in):
    def make():
        return DataLoader(stream(of, **options), 4)

    whole = seen_in(make)
    assert len(whole) == 3 * 16
    for stop in range(1, len(whole)):
        assert seen_in(make, [stop]) == whole, stop
    assert seen_in(make, [1, 7, 20, 21]) == whole
    assert seen_in(make, [1, 7, 20, 21], anew=False) == whole
    assert seen_in(make, [2, 3, 11], epoch_length=5) == seen_in(make, epoch_length=5)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 1])
@pytest.mark.parametrize("drop_last", [False, True])
def test_so_does_one_whose_shards_are_read_by_workers(workers, drop_last, seen_in):
    def make():
        return DataLoader(stream(), 4, num_workers=workers, drop_last=drop_last)

    whole = seen_in(make, epochs=2)
    for stops in ([1], [2, 3], [len(whole) // 2 + 2], [len(whole) - 1]):
        assert seen_in(make, stops, epochs=2) == whole, stops
        assert seen_in(make, stops, epochs=2, anew=False) == whole, stops


def test_samples_that_come_one_by_one_resume_too(seen_in):
    def make():
        return DataLoader(stream(), None)

    whole = seen_in(make)
    assert len(whole) == 3 * len(IDS)
    for stop in range(1, len(whole), 7):
        assert seen_in(make, [stop]) == whole


def test_the_engine_gives_what_a_loop_over_the_loader_gives():
    for workers in (0, 2):
        data, by_hand = DataLoader(stream(), 4, num_workers=workers), []
        for epoch in range(2):
            data.dataset.set_epoch(epoch)
            by_hand += [(epoch + 1, batch.tolist()) for batch in data]
        seen, _ = part(DataLoader(stream(), 4, num_workers=workers), epochs=2)
        assert [(epoch, batch) for epoch, _, batch in seen] == by_hand


def test_each_sample_of_each_epoch_comes_once_and_in_another_order():
    seen, _ = part(DataLoader(stream(), 4), epochs=2)
    assert sorted(flat(seen)) == sorted(flat(seen, 2)) == IDS
    assert flat(seen) != flat(seen, 2)
    firsts = [each[0] for each in flat(seen)[:12]]
    assert len(set(firsts)) >= 3  # several shards are open
    in_order, _ = part(DataLoader(stream(shuffle_buffer=0), 4), epochs=2)
    assert flat(in_order) == flat(in_order, 2) == IDS


def rows(seen, epoch):
    return [row for at, _, batch in seen if at == epoch for row in batch]


def left_by(ranks, make, saved, stop_at, seen):
    """Let ranks read to an iteration; the state that a checkpoint gives to another number."""
    states = []
    for rank in range(ranks):
        _, state = part(make(ranks, rank), saved, stop_at, batches=seen)
        states.append(state)
    told = [state["position"]["told"] for state in states]
    going_on = [state for state in states if not state["position"]["used_up"]]
    if not going_on:
        return None
    going_on[0]["position"]["told_by_ranks"] = told
    return going_on[0]


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=6, max_size=20),
    stages=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), max_size=4),
    last=st.integers(1, 6),
    size=st.integers(1, 5),
    shuffle=st.integers(0, 9),
    opened=st.integers(1, 4),
    seeks=st.booleans(),
)
def test_on_any_numbers_of_ranks_in_turn_each_sample_of_an_epoch_comes_once(
    sizes, stages, last, size, shuffle, opened, seeks
):
    def numbers(shard):
        return ([shard, place] for place in range(sizes[shard]))

    def numbers_from(shard, start):
        return ([shard, place] for place in range(start, sizes[shard]))

    def make(ranks, rank):
        own = ShardedStream(
            range(len(sizes)),
            numbers_from if seeks else numbers,
            shuffle_buffer=shuffle,
            open_shards=opened,
        )
        own.deal_to(ranks, rank)
        return DataLoader(own, size, collate_fn=torch.tensor)

    def is_read(ranks):
        """Each rank has a sample: one without any is an error."""
        return all(list(make(ranks, rank)) for rank in range(ranks))

    if not all(map(is_read, {last, *(ranks for ranks, _ in stages)})):
        return
    seen, saved, stop_at = [], None, 0
    for ranks, more in [*stages, (last, 999)]:
        stop_at += more
        saved = left_by(ranks, make, saved, stop_at, seen)
        if saved is None:
            break
    whole = [(shard, place) for shard, count in enumerate(sizes) for place in range(count)]
    assert sorted(flat(seen)) == whole


@pytest.mark.slow
def test_a_run_on_other_ranks_resumes_exactly_itself():
    def make(ranks, rank):
        data = stream(open_shards=3)
        data.deal_to(ranks, rank)
        return DataLoader(data, 3)

    saved = left_by(3, make, None, 2, [])
    for rank in range(2):
        whole, _ = part(make(2, rank), saved, epochs=2)
        assert len(whole) > 10
        for stop_at in range(3, 2 + len(whole)):
            seen, again = part(make(2, rank), saved, stop_at, epochs=2)
            assert seen + part(make(2, rank), again, epochs=2)[0] == whole, stop_at


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 1), (1, 3)])
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3:UserWarning")
def test_on_another_number_of_workers_each_sample_comes_once_with_the_same_draws(before, after):
    whole, _ = part(DataLoader(stream(), 3), epochs=2)
    seen, saved = part(DataLoader(stream(), 3, num_workers=before), stop_at=9, epochs=2)
    part(DataLoader(stream(), 3, num_workers=after), saved, epochs=2, batches=seen)
    for epoch in (1, 2):
        assert sorted(flat(seen, epoch)) == IDS
        assert sorted(rows(seen, epoch)) == sorted(rows(whole, epoch))


def test_what_the_training_draws_does_not_depend_on_what_the_shards_draw():
    def numbers(of, workers=0):
        torch.manual_seed(0)
        found = []
        engine = Engine(lambda state, batch: found.append(torch.rand(()).item()))
        engine.run(DataLoader(stream(of), 4, num_workers=workers), max_epochs=1)
        return found[:15]

    def silent(shard):
        return (torch.tensor([shard, place]) for place in range(SIZES[shard]))

    assert numbers(read) == numbers(silent) == numbers(read, 2)


class Counted:
    """Reads shards, and counts the samples that are read."""

    def __init__(self):
        self.read = Counter()

    def __call__(self, shard, start):
        for place in range(start, 100):
            self.read[shard] += 1
            yield torch.tensor([shard, place])


def test_a_resume_reads_again_at_most_what_the_buffer_holds():
    whole = Counted()
    part(DataLoader(stream(whole, range(8), shuffle_buffer=40), 10))
    assert sum(whole.read.values()) == 800
    for stop in (1, 33, 79):
        first, second = Counted(), Counted()
        data = DataLoader(stream(first, range(8), shuffle_buffer=40), 10)
        _, saved = part(data, stop_at=stop)
        part(DataLoader(stream(second, range(8), shuffle_buffer=40), 10), saved)
        # 40 beyond what was given are in the buffer; a resume reads its blocks again.
        assert sum(first.read.values()) <= 10 * stop + 40 + 10
        assert sum(second.read.values()) <= 800 - 10 * stop + 40


def test_shards_that_are_over_are_not_opened_again():
    opened = []

    def noted(shard):
        opened.append(shard)
        return read(shard)

    _, saved = part(DataLoader(stream(noted, open_shards=2), 4), stop_at=14)
    before, opened[:] = set(opened), []
    part(DataLoader(stream(noted, open_shards=2), 4), saved)
    assert len(before & set(opened)) <= 3  # those that are open, and one that has just ended


def test_a_rank_and_a_worker_get_whole_shards():
    for ranks in (1, 2, 3, 5, 10):
        own = []
        for rank in range(ranks):
            data = stream()
            data.deal_to(ranks, rank)
            own.append(data.order())
        assert sorted(shard for each in own for shard in each) == list(range(10))
        assert {len(each) for each in own} <= {10 // ranks, -(-10 // ranks)}


class Dealing(IterableDataset):
    """A data set that deals its samples out to the workers, as those of libraries do."""

    def __init__(self, shard):
        self.shard = shard

    def __iter__(self):
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        places = range(number, SIZES[self.shard], workers)
        return (torch.tensor([self.shard, place]) for place in places)


def test_a_library_that_deals_samples_out_to_the_workers_does_not_do_so_again():
    seen, _ = part(DataLoader(stream(Dealing), 4, num_workers=2))
    assert sorted(flat(seen)) == IDS


def test_workers_functions_still_find_their_worker():
    def noted(samples):
        return torch.tensor([get_worker_info().id] * len(samples))

    found = []
    data = DataLoader(stream(), 4, num_workers=2, collate_fn=noted)
    Engine(lambda state, batch: found.extend(batch.tolist())).run(data, max_epochs=1)
    assert set(found) == {0, 1}


def noisy(samples):
    return torch.stack(samples) + torch.rand(())


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_collate_fn_draws_resumes(workers, seen_in):
    def make():
        return DataLoader(stream(), 4, num_workers=workers, collate_fn=noisy)

    whole = seen_in(make, epochs=1)
    assert seen_in(make, [5], epochs=1) == whole


def test_an_evaluation_inside_of_a_run_reads_each_sample_once():
    data, other, found = DataLoader(stream(), 4), DataLoader(stream(), 5), []
    engine = Engine(lambda state, batch: found.extend([] if state.training else ids(batch)))
    engine.on(Events.ITERATION_COMPLETED(at=6))(lambda state: engine.evaluate(other))
    engine.on(Events.ITERATION_COMPLETED(at=9))(lambda state: engine.evaluate(data))
    engine.run(data, max_epochs=1)
    assert sorted(found) == sorted(IDS * 2)


def test_loader_makes_its_batches_over_all_ranks():
    data = loader(stream(), 8, training=True, num_workers=0)
    assert data.batch_size == 8
    assert sorted(flat(part(data)[0])) == IDS
    for data, options in (
        (stream(), {"seed": 1}),
        (stream(), {"sampler": [1]}),
        (stream(shuffle_buffer=0), {}),
    ):
        with pytest.raises(ValueError, match="ShardedStream has an order of its own"):
            loader(data, 8, training=True, **options)
    assert sorted(flat(part(loader(stream(shuffle_buffer=0), 8, training=False))[0])) == IDS
    with pytest.raises(TypeError, match="stream without indices: give a ShardedStream"):
        loader(Dealing(1), 8, training=True)


def test_other_batches_are_told_of(caplog):
    seen, saved = part(DataLoader(stream(), 4), stop_at=3)
    with caplog.at_level("WARNING", "camshaft"):
        part(DataLoader(stream(), 6), saved, batches=seen)
    (said,) = caplog.messages
    assert "goes on with 6 samples a batch instead of 4 over all ranks, each sample once" in said
    assert "None" not in said
    assert sorted(flat(seen)) == IDS


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 4},
        {"shuffle_buffer": 16},
        {"open_shards": 3},
        {"shards": range(9)},
    ],
)
def test_another_order_is_refused_in_mid_epoch_and_not_between_epochs(other):
    _, saved = part(DataLoader(stream(), 4), stop_at=3)
    with pytest.raises(ValueError, match="order of its samples was drawn by ShardedStream"):
        part(DataLoader(stream(**other), 4), saved)
    _, saved = part(DataLoader(stream(), 4))
    assert part(DataLoader(stream(**other), 4), saved, epochs=2)[0]


def test_files_in_another_order_are_refused_and_in_another_folder_are_not():
    def of(names):
        return DataLoader(stream(lambda name: read(int(name[-5])), names), 4)

    names = [f"/data/{number}.tar" for number in range(10)]
    _, saved = part(of(names), stop_at=3)
    with pytest.raises(ValueError, match="names"):
        part(of(names[::-1]), saved)
    assert part(of([f"s3://bucket/{number}.tar" for number in range(10)]), saved)[0]


def test_a_shard_that_has_lost_samples_is_an_error():
    def fewer(shard):
        return (sample for sample, _ in zip(read(shard), range(1), strict=False))

    for of, options in (
        (fewer, {"shuffle_buffer": 0}),
        (fewer, {"shuffle_buffer": 4}),
        (lambda shard, start: iter(()), {"shuffle_buffer": 0}),
        (lambda shard, start: iter(()), {"shuffle_buffer": 9, "open_shards": 3}),
    ):
        _, saved = part(DataLoader(stream(**options), 4), stop_at=8)
        says = r"the shard \d has fewer samples than the \d+ that it gave before the run was left"
        with pytest.raises(ValueError, match=says):
            part(DataLoader(stream(of, **options), 4), saved)


def test_an_error_of_a_reader_names_the_shard():
    def fails(shard):
        yield from read(shard)
        if shard == 7:
            raise OSError("connection lost")

    for of in (fails, lambda shard: fails(shard) if shard != 7 else 1 / 0):
        with pytest.raises((OSError, ZeroDivisionError)) as told:
            part(DataLoader(stream(of), 4))
        assert "while reading the shard 7" in told.value.__notes__


def persistent():
    return DataLoader(stream(), num_workers=1, persistent_workers=True)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: stream("text"), "needs a function of one shard"),
        (lambda: stream(seed=None), "seed=None: needs a whole number"),
        (lambda: stream(shuffle_buffer=-1), "shuffle_buffer=-1: needs a number that is not"),
        (lambda: stream(shuffle_buffer=1.5), "shuffle_buffer=1.5: needs a whole number"),
        (lambda: stream(open_shards=0), "open_shards=0: needs a number from 1"),
        (lambda: stream(shards=[]), "0 shards for 1 ranks"),
        (lambda: stream().deal_to(11, 0), "10 shards for 11 ranks: needs one for each"),
        (lambda: source_of(persistent()), "leave persistent_workers out"),
    ],
)
def test_what_cannot_be_is_refused_at_once(make, says):
    with pytest.raises((TypeError, ValueError)) as told:
        make()
    assert says in str(told.value)


def test_what_was_left_with_other_data_is_refused():
    class Own:
        def __iter__(self):
            return iter([torch.tensor([[0, 1]])] * 9)

    _, saved = part(Own(), stop_at=3)
    with pytest.raises(ValueError, match="left with other data. Go on on 1 ranks with the data"):
        part(DataLoader(stream(), 4), saved)


def test_ranks_that_were_left_in_different_passes_are_told():
    _, saved = part(DataLoader(stream(), 4), stop_at=3)
    told = saved["position"]["told"]
    saved["position"]["told_by_ranks"] = [told, {**told, "epoch": 1}]
    with pytest.raises(
        ValueError, match="left with its ranks in different passes.* Go on on 2 ranks"
    ):
        part(DataLoader(stream(), 4), saved)


def test_batches_that_come_out_of_order_are_a_doubt(doubts):
    assert not doubts(DataLoader(stream(), 4, num_workers=1))
    said = doubts(DataLoader(stream(), 4, num_workers=1, in_order=False))
    assert "in_order=False" in "".join(said)
