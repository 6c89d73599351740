"""Data of every kind is taken up where it was left: the very same batches follow."""

import random

import numpy
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader import StatefulDataLoader

from camshaft import Engine, Events, LengthBatches, Packed, Padded, State, loader
from camshaft.engine.data import source_of
from camshaft.engine.data.dataloader.loader import IndexedLoader
from camshaft.engine.data.dataloader.loader import Loader as StreamLoader
from camshaft.engine.data.sources import Source
from camshaft.engine.data.stateful import Stateful

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more than the machine has
    pytest.mark.filterwarnings("ignore:.set_vital. is deprecated"),  # by torchdata 0.11
]


class Noisy(Dataset):
    """Numbers with noise of all three generators."""

    def __len__(self):
        return 11

    def __getitem__(self, index):
        noise = random.random() + float(numpy.random.rand()) + torch.rand(()).item()
        return torch.tensor([index, noise], dtype=torch.float64)


class OwnNoise(Noisy):
    def __init__(self):
        self.mine, self.other = random.Random(4), numpy.random.default_rng(4)
        self.third = numpy.random.RandomState(4)

    def __getitem__(self, index):
        return torch.tensor([index, self.mine.random() + self.other.random() + self.third.rand()])


class Stream(IterableDataset):
    def __iter__(self):
        return (index + random.random() for index in range(7))


class DrawnAtOnce(Sampler):
    """Batches whose order is drawn as `iter` begins them."""

    def __iter__(self):
        order = random.sample(range(11), 11)
        return (order[begin : begin + 4] for begin in range(0, 11, 4))


class Drawing(Sampler):
    """A sampler that draws from Python's generator whenever it is asked for an index."""

    def __iter__(self):
        return (random.randrange(11) for _ in range(11))

    def __len__(self):
        return 11


class Cursor:
    """Data that knows its own place."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        while self.at < 5:
            self.at += 1
            yield self.at
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, saved):
        self.at = saved["at"]


class Doubling(DataLoader):
    def __iter__(self):
        return (2 * batch for batch in super().__iter__())


def noisy_collate(samples):
    return torch.stack(samples) + random.random()


def of_like_length():
    lengths = [1 + number % 7 for number in range(11)]
    texts = [torch.full((length,), number) for number, length in enumerate(lengths)]
    return DataLoader(texts, batch_sampler=LengthBatches(lengths, 3), collate_fn=Padded())


def by_tokens(workers=0):
    lengths = [1 + number % 7 for number in range(23)]
    texts = [torch.full((length,), number) for number, length in enumerate(lengths)]
    batches = LengthBatches(lengths, max_tokens=14, pool=2)
    return DataLoader(texts, batch_sampler=batches, collate_fn=Padded(), num_workers=workers)


def documents_of(rows):
    return torch.stack([row["input_ids"] for row in rows])


def packed(workers=0):
    rows = Packed([[number] * (1 + number % 7) for number in range(40)], max_tokens=16, window=15)
    return loader(rows, 2, training=True, num_workers=workers, collate_fn=documents_of)


def noisy(**options):
    return lambda: DataLoader(Noisy(), **options)


X = TensorDataset(torch.arange(11.0))
KINDS = {
    "shuffled": noisy(batch_size=3, shuffle=True),
    "own generator": lambda: DataLoader(
        X, 3, shuffle=True, generator=torch.Generator().manual_seed(5)
    ),
    "weighted": lambda: DataLoader(X, 3, sampler=WeightedRandomSampler(torch.arange(1.0, 12), 11)),
    "batch sampler": lambda: DataLoader(X, batch_sampler=BatchSampler(RandomSampler(X), 3, False)),
    "a list of batches": noisy(batch_sampler=[[0, 1], [5], [2, 2, 2], [7, 8]]),
    "a sampler that draws as it goes": noisy(batch_size=3, sampler=Drawing()),
    "dealt out": lambda: loader(Noisy(), 3, training=True, num_workers=0),
    "an order that draws as it goes, dealt out": lambda: loader(
        X, 3, training=True, sampler=Drawing()
    ),
    "collate": noisy(batch_size=3, shuffle=True, collate_fn=noisy_collate),
    "one by one": noisy(batch_size=None),
    "short batches dropped": noisy(batch_size=3, shuffle=True, drop_last=True),
    "generators of the data set": lambda: DataLoader(OwnNoise(), 4, shuffle=True),
    "an iteration of its own": lambda: Doubling(Noisy(), 4, shuffle=True),
    "of like length": of_like_length,
    "by tokens": by_tokens,
    "packed": packed,
    "iterable": lambda: DataLoader(Stream(), 3),
    "list": lambda: [torch.tensor([float(index)]) for index in range(4)],
    "a place of its own": Cursor,
    "torchdata": lambda: StatefulDataLoader(range(11), 3, shuffle=True),
}
WITH_WORKERS = {
    "shuffled": noisy(batch_size=4, shuffle=True, num_workers=2),
    "persistent": noisy(batch_size=3, shuffle=True, num_workers=1, persistent_workers=True),
    "persistent, drawn at once": noisy(
        batch_sampler=DrawnAtOnce(), num_workers=2, persistent_workers=True
    ),
    "one by one": noisy(batch_size=None, num_workers=2),
    "a list of batches": noisy(batch_sampler=[[0, 1], [5], [2, 2, 2], [7, 8]], num_workers=2),
    "collate": noisy(batch_size=4, shuffle=True, collate_fn=noisy_collate, num_workers=2),
    "a sampler that draws as it goes": noisy(batch_size=4, sampler=Drawing(), num_workers=2),
    "short batches dropped": noisy(batch_size=4, shuffle=True, drop_last=True, num_workers=2),
    "batch sampler": noisy(
        batch_sampler=BatchSampler(RandomSampler(range(11)), 5, False), num_workers=2
    ),
    "an iteration of its own": lambda: Doubling(Noisy(), 4, shuffle=True, num_workers=2),
    "by tokens": lambda: by_tokens(2),
    "packed": lambda: packed(2),
    "torchdata": lambda: StatefulDataLoader(range(11), 4, shuffle=True, num_workers=2),
}


@pytest.mark.quick(kind=6)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_left_anywhere_and_carried_on_in_a_new_process_sees_the_same(kind, seen_in):
    whole = seen_in(KINDS[kind])
    for stop in range(1, len(whole)):
        assert seen_in(KINDS[kind], [stop]) == whole, stop
    stops = [1, len(whole) // 2, len(whole) // 2 + 1, len(whole) - 1]
    assert seen_in(KINDS[kind], stops) == whole
    assert seen_in(KINDS[kind], stops, anew=False) == whole


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind == "persistent" else pytest.mark.slow)
        for kind in WITH_WORKERS
    ],
)
@pytest.mark.parametrize("anew", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_so_does_one_whose_data_is_loaded_by_workers(kind, anew, seen_in):
    whole = seen_in(WITH_WORKERS[kind])
    for stops in ([2], [3, 4], [len(whole) - 1]):
        assert seen_in(WITH_WORKERS[kind], stops, anew=anew) == whole, stops


@pytest.mark.parametrize("kind", ["shuffled", "a place of its own", "list"])
def test_virtual_epochs_draw_the_same_too(kind, seen_in):
    whole = seen_in(KINDS[kind], epoch_length=3)
    assert len(whole) == 9
    for stop in range(1, 9):
        assert seen_in(KINDS[kind], [stop], epoch_length=3) == whole, stop
    assert seen_in(KINDS[kind], [2, 3, 5], epoch_length=3) == whole


@pytest.mark.slow
def test_virtual_epochs_over_workers_see_the_same_after_a_resume(seen_in):
    make = WITH_WORKERS["shuffled"]
    assert seen_in(make, [4, 5], epoch_length=4) == seen_in(make, epoch_length=4)


def test_each_kind_of_data_has_its_way():
    assert type(source_of([1, 2])) is Source
    assert type(source_of(Cursor())) is Stateful
    assert type(source_of(type("Told", (list,), {"state_dict": dict})())) is Source
    assert type(source_of(StatefulDataLoader(range(3)))) is Stateful
    assert type(source_of(DataLoader(range(3)))) is IndexedLoader
    assert type(source_of(DataLoader(Stream()))) is StreamLoader
    assert type(source_of(Doubling(range(3)))) is Source
    seen = []
    Engine(lambda state, batch: seen.append(batch.item())).run(Doubling(range(3)), max_epochs=1)
    assert seen == [0, 2, 4]


@pytest.mark.parametrize("limit", [{"max_iterations": 4}, {"max_steps": 4}, {}])
def test_a_limit_at_the_end_of_an_epoch_leaves_the_samplers_generator_where_it_would_be(limit):
    def process(state, batch):
        seen.append(batch[0].tolist())
        state.fire(Events.STEP_COMPLETED)

    seen = []
    Engine(process).run(KINDS["own generator"](), max_iterations=12)
    whole, seen = seen, []
    engine, mine = Engine(process), KINDS["own generator"]()
    if not limit:
        engine.on(Events.ITERATION_COMPLETED(at=4))(lambda state: state.stop("x", resumable=True))
    state = engine.run(mine, **limit or {"max_epochs": 9})
    engine.run(mine, state=state, max_iterations=12, max_steps=99)
    assert seen == whole


class Counting(Dataset):
    calls = 0

    def __len__(self):
        return 23

    def __getitem__(self, index):
        type(self).calls += 1
        return float(index)


def test_data_is_asked_for_its_place_only_once_it_is_there_again():
    """A run interrupted after a virtual epoch's last batch saves before it reads on."""
    seen = []
    engine = Engine(lambda state, batch: seen.append(batch))
    engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.interrupt("asked to"))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: state.save("epoch"))
    engine.on(Events.SAVING)(lambda state: None)
    saved = engine.run(Cursor(), max_epochs=3, epoch_length=3).state_dict()
    state = State(max_epochs=3)
    state.load_state_dict(saved)
    engine.run(Cursor(), state=state, epoch_length=3)
    assert seen == [1, 2, 3, 4, 5, 1, 2, 3, 4]


def test_torchdatas_loader_loads_none_of_what_was_seen(seen_in):
    def make():
        return StatefulDataLoader(Counting(), 4, shuffle=True)

    Counting.calls = 0
    seen_in(make, [4])
    assert Counting.calls == 3 * 23


@pytest.mark.parametrize(
    ("drop_last", "ranks", "repeated"), [(False, 3, 1), (True, 3, 0), (False, 23, 0)]
)
def test_torchdatas_loader_says_once_which_samples_a_sampler_repeats(
    caplog, drop_last, ranks, repeated
):
    sampler = DistributedSampler(Counting(), ranks, rank=0, drop_last=drop_last)
    loader, plain = (
        kind(Counting(), 4, sampler=sampler) for kind in (StatefulDataLoader, DataLoader)
    )
    engine = Engine(lambda state, batch: None)
    with caplog.at_level("WARNING", "camshaft"):
        engine.evaluate(plain)
        assert not caplog.records
        for _ in range(2):
            engine.evaluate(loader)
            engine.run(loader, max_epochs=1)
    said = [each.message for each in caplog.records]
    assert len(said) == bool(repeated)
    assert all("StatefulDataLoader hands out 1 of 23 samples twice" in each for each in said)


def test_a_stopped_epoch_of_torchdatas_loader_is_not_gone_on_with_in_the_next_one():
    def run(stops):
        torch.manual_seed(0)
        seen, make = [], lambda: StatefulDataLoader(Counting(), 4, shuffle=True)
        engine = Engine(lambda state, batch: seen.append(batch.tolist()))
        engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.stop_epoch())
        for _ in range(stops):
            engine.on(Events.EPOCH_COMPLETED(at=1))(lambda state: state.stop("pause"))
        state = engine.run(make(), max_epochs=2)
        if stops:
            saved = state.state_dict()
            state = type(state)(max_epochs=2)
            state.load_state_dict(saved)
            torch.manual_seed(9)
            engine.run(make(), state=state)
        return seen

    assert run(1) == run(0)
    assert len(run(0)) == 3 + 6
