"""Data that draw random numbers in turn with the training: resumed exactly, refused, or told of."""

import random
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
)
from torchdata.stateful_dataloader import StatefulDataLoader

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.set_vital. is deprecated"),  # by torchdata 0.11
]


def forever(loader):
    while True:
        yield from loader


def numbers(**arguments):
    return forever(DataLoader(range(20), 4, shuffle=True, **arguments))


class Both:
    """Pairs of batches, of which the shorter loader is begun again within a pass."""

    def __init__(self):
        self.long, self.short = (DataLoader(range(n), 4, shuffle=True) for n in (40, 12))

    def __iter__(self):
        pairs = zip(self.long, forever(self.short), strict=False)
        return ((long.tolist(), short.tolist()) for long, short in pairs)


@pytest.mark.parametrize("make", [numbers, Both])
def test_a_loader_that_is_begun_again_within_a_pass_is_refused_behind_it(seen_in, make):
    limit = {"epoch_length": 9} if make is numbers else {}
    assert seen_in(make, (3,), epochs=1, **limit) == seen_in(make, epochs=1, **limit)
    with pytest.raises(ValueError, match=r"asked again .* gives something else"):
        seen_in(make, (8,), epochs=1, **limit)


def test_a_save_tells_of_a_loader_that_is_begun_again_within_a_pass(doubts):
    def halves():  # more batches than the loader has, which is begun once
        for batch in DataLoader(range(20), 4, shuffle=True):
            yield from batch.split(2)

    def step(state, batch):
        torch.rand(1)  # as a dropout does

    said = ["a resumed run may not be the same to the last bit: the Both begins a loader again"]
    assert [each[: len(said[0])] for each in doubts(Both(), step)] == said
    assert doubts(Both()) == []
    own = DataLoader(range(8), 4, shuffle=True, generator=torch.Generator())
    in_order = [(each for each in (7, 8, 9))], [DataLoader(range(8), 4)] * 3, [own] * 3, [halves()]
    for loaders in in_order:
        assert doubts((batch for each in loaders for batch in each), step) == [], loaders


def test_one_with_a_generator_of_its_own_is_exact(seen_in):
    def make():
        return numbers(generator=torch.Generator().manual_seed(1))

    whole = seen_in(make, epochs=2, epoch_length=9)
    assert seen_in(make, (8, 13), epochs=2, epoch_length=9) == whole


class Shuffled(IterableDataset):
    def __iter__(self):
        buffer = [*range(10)]
        for each in range(10, 40):
            place = int(self.draw())
            yield buffer[place]
            buffer[place] = each


class InTurn(Shuffled):
    def draw(self):
        return torch.randint(10, ())


class Apart(Shuffled):
    def __init__(self):
        self.random = random.Random(1)

    def draw(self):
        return self.random.randrange(10)


class Noise(IterableDataset):
    """Numbers, and noise that is for its sample alone."""

    def __iter__(self):
        return ((each, torch.rand(()).item()) for each in range(40))


def test_a_shuffle_buffer_that_draws_in_turn_with_the_training_is_told(seen_in, caplog):
    for kind in (Apart, Noise):
        whole = seen_in(lambda kind=kind: DataLoader(kind(), 4), epochs=1)
        assert seen_in(lambda kind=kind: DataLoader(kind(), 4), (3,), epochs=1) == whole
    assert not caplog.records
    seen_in(lambda: DataLoader(InTurn(), 4), (3,), epochs=1)
    (record,) = caplog.records
    assert "the DataLoader draws random numbers as it is read, in turn with" in record.getMessage()


def test_a_loader_with_a_state_whose_sampler_has_none_is_exact(seen_in):
    def make():
        sampler = BatchSampler(RandomSampler(range(20)), 4, drop_last=False)
        return StatefulDataLoader(range(20), batch_sampler=sampler)

    whole = seen_in(make)
    for stop in (1, 3, 5, 8):
        assert seen_in(make, (stop,)) == whole, stop


def test_one_whose_samples_draw_as_well_is_told(doubts):
    class Drawing:
        def __len__(self):
            return 20

        def __getitem__(self, index):
            return index + torch.rand(())

    assert doubts(StatefulDataLoader(Drawing(), 4, shuffle=True)) == []
    sampler = BatchSampler(RandomSampler(range(20)), 4, drop_last=False)
    (message,) = doubts(StatefulDataLoader(Drawing(), batch_sampler=sampler))
    assert "the sampler of a StatefulDataLoader draws its order when the first batch" in message


@pytest.mark.parametrize("reads_ahead", [False, True])
def test_nodes_that_read_ahead_in_a_thread_are_told(doubts, reads_ahead):
    from torchdata.nodes import Batcher, IterableWrapper, Loader, Prefetcher

    node = Batcher(IterableWrapper(range(8)), 4)
    messages = doubts(Loader(Prefetcher(node, 2) if reads_ahead else node))
    assert ["nor those that its threads draw" in one for one in messages] == (
        [True] if reads_ahead else []
    )


def test_nodes_that_hand_out_samples_as_they_come_are_told(doubts):
    from torchdata.nodes import IterableWrapper, Loader, ParallelMapper

    def messages(**options):
        return doubts(Loader(ParallelMapper(IterableWrapper(range(8)), abs, 1, **options)))

    assert not any("in_order" in each for each in messages())
    assert any("some may come twice or never" in each for each in messages(in_order=False))


class Late(list):
    """Batches whose length is known after the first pass has begun, as lightning's are."""

    begun = False

    def __iter__(self):
        self.begun = True
        return super().__iter__()

    def __len__(self):
        if not self.begun:
            raise RuntimeError("call iter() first")
        return super().__len__()


def test_a_length_that_is_not_known_yet_is_no_other_length(seen_in):
    assert seen_in(lambda: Late(range(6)), (8,)) == seen_in(lambda: Late(range(6)))


class InChunks(Sampler):
    """An order that is drawn in chunks, as they are reached."""

    def __init__(self, size, generator=None):
        self.size, self.generator = size, generator

    def __iter__(self):
        for begin in range(0, 40, self.size):
            yield from (torch.randperm(self.size, generator=self.generator) + begin).tolist()


LATE = "draws random numbers as it is read, in turn with the training"


@pytest.mark.parametrize("size", [10, 3])
def test_a_sampler_that_draws_its_order_in_chunks_is_told_in_turn_with_the_training(
    seen_in, caplog, size
):
    def make():
        return DataLoader(range(48), 4, sampler=InChunks(size))

    assert seen_in(make, (1,)) == seen_in(make)
    assert not caplog.records
    assert seen_in(make, (7,)) != seen_in(make)
    assert [LATE in message and "InChunks" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize(("size", "stop"), [(4, 3), (4, 6), (16, 3)])
def test_what_workers_asked_for_before_a_step_drew_is_told(seen_in, caplog, size, stop):
    def make():
        return DataLoader(range(48), 4, sampler=InChunks(size), num_workers=1)

    assert seen_in(make, (stop,), epochs=1) != seen_in(make, epochs=1)
    assert [LATE in message and "InChunks" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (1, 0),
        pytest.param(2, 1, marks=pytest.mark.slow),
        pytest.param(0, 2, marks=pytest.mark.slow),
    ],
)
def test_a_sampler_with_a_generator_of_its_own_may_draw_for_other_workers(
    seen_in, caplog, was, now
):
    def make(workers):
        sampler = InChunks(8, torch.Generator().manual_seed(3))
        return DataLoader(range(48), 4, sampler=sampler, num_workers=workers)

    whole = seen_in(lambda: make(was), epochs=2)
    for stop in (1, 3, 10, 13):
        workers = iter([was, now])
        assert seen_in(lambda workers=workers: make(next(workers)), (stop,), epochs=2) == whole
    assert not caplog.records


class Noisy(Dataset):
    """A data set whose transform has a generator."""

    def __init__(self):
        self.transform = SimpleNamespace(noise=random.Random(1))

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index + self.transform.noise.random()


class Inside(Sampler):
    """A sampler that holds samplers with generators."""

    def __init__(self):
        seeds = (1, 2)
        made = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.parts = [RandomSampler(range(10), generator=each) for each in made]
        self.own = SimpleNamespace(random=random.Random(3))

    def __iter__(self):
        pairs = [pair for both in zip(*self.parts, strict=True) for pair in both]
        return iter(self.own.random.sample(pairs, 20))


DEEP = {
    "below torch's wrappers": lambda: DataLoader(
        Subset(ConcatDataset([Noisy(), Noisy()]), range(12)), 4
    ),
    "in a sampler": lambda: DataLoader(range(20), 4, sampler=Inside()),
    "in a sampler, with workers": lambda: DataLoader(range(20), 4, sampler=Inside(), num_workers=1),
}


@pytest.mark.parametrize("kind", DEEP)
def test_generators_deep_in_data_sets_and_samplers_go_on(seen_in, kind):
    whole = seen_in(DEEP[kind])
    for stop in (2, 3, 5) if kind == "below torch's wrappers" else (2, 5, 7):
        assert seen_in(DEEP[kind], (stop,)) == whole, stop
