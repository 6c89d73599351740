"""Where in the data a run is: carrying on draws the very same batches."""

import random

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from camshaft import Engine, Events


class Noisy(Dataset):
    """Numbers with random noise of Python's and torch's generators."""

    def __len__(self):
        return 11

    def __getitem__(self, index):
        return index + random.random() + torch.rand(()).item()


class Stream(IterableDataset):
    def __iter__(self):
        return (index + random.random() for index in range(7))


def loaders():
    data = TensorDataset(torch.arange(11.0))
    own = torch.Generator().manual_seed(5)
    weighted = WeightedRandomSampler(torch.arange(1.0, 12.0), 11)
    batches = BatchSampler(RandomSampler(data), 3, drop_last=False)
    yield "shuffle", lambda: DataLoader(data, 3, shuffle=True)
    yield "own generator", lambda: DataLoader(data, 3, shuffle=True, generator=own.clone_state())
    yield "weighted", lambda: DataLoader(data, 3, sampler=weighted)
    yield "batch sampler", lambda: DataLoader(data, batch_sampler=batches)
    yield "random samples", lambda: DataLoader(Noisy(), 3, shuffle=True)
    yield "workers", lambda: DataLoader(Noisy(), 3, shuffle=True, num_workers=2)
    yield "iterable", lambda: DataLoader(Stream(), 3)
    yield "list", lambda: [torch.tensor([float(index)]) for index in range(4)]


def noted(batch):
    return (batch[0] if isinstance(batch, list) else batch).tolist()


def run(make_loader, stop_at=(), **arguments):
    """Two epochs with random draws in each step, left and carried on after some iterations."""
    torch.manual_seed(0)
    random.seed(0)
    seen = []

    def process(state, batch):
        seen.append((noted(batch), torch.rand(()).item(), random.random()))

    engine, loader = Engine(process), make_loader()
    for iteration in stop_at:
        stop = Events.ITERATION_COMPLETED(at=iteration, once=True)
        engine.on(stop)(lambda state: state.stop("pause"))
    state = engine.run(loader, max_epochs=3, **arguments)
    for _ in stop_at:
        torch.rand(7)  # somebody draws in between
        random.random()
        engine.run(loader, state=state, **arguments)
    assert state.stop_reason == "max_epochs"
    return seen


@pytest.mark.parametrize(("name", "make_loader"), list(loaders()), ids=str)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_run_left_at_any_iteration_draws_what_the_whole_run_draws(name, make_loader):
    whole = run(make_loader)
    stops = [2, 4, 7] if name == "workers" else range(1, len(whole))
    for stop_at in stops:
        assert run(make_loader, [stop_at]) == whole, stop_at


def test_a_run_may_be_left_twice_in_one_epoch_and_between_epochs():
    make_loader = dict(loaders())["random samples"]
    assert run(make_loader, [1, 3, 4, 6]) == run(make_loader)


def test_virtual_epochs_draw_the_same_too():
    make_loader = dict(loaders())["random samples"]
    whole = run(make_loader, epoch_length=3)
    for stop_at in range(1, len(whole)):
        assert run(make_loader, [stop_at], epoch_length=3) == whole, stop_at


def test_samplers_and_data_sets_that_shuffle_by_epoch_are_told_which_one_begins():
    class Sampler:
        def __init__(self):
            self.told = []

        def set_epoch(self, epoch):
            self.told.append(epoch)

        def __iter__(self):
            return iter(range(4))

        def __len__(self):
            return 4

    sampler = Sampler()
    loader = DataLoader(TensorDataset(torch.arange(4.0)), 2, sampler=sampler)
    engine = Engine(lambda state, batch: None)
    engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.stop("pause"))
    state = engine.run(loader, max_epochs=3)
    assert sampler.told == [0, 1]
    engine.run(loader, state=state)
    assert sampler.told == [0, 1, 1, 2]


def test_the_length_of_an_epoch_is_known_if_the_data_knows_it():
    engine, lengths = Engine(lambda state, batch: None), []
    engine.on(Events.EPOCH_STARTED)(lambda state: lengths.append(state.epoch_length))
    engine.run([1, 2], max_epochs=1)
    engine.run(iter([1, 2]), max_epochs=1)
    engine.run([1, 2], max_epochs=1, epoch_length=5)
    assert lengths == [2, None, 5]


def test_the_engine_never_seeds_anything():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    Engine(lambda state, batch: None).run([1, 2], max_epochs=2)
    assert torch.equal(torch.rand(2), expected)
