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


@pytest.mark.parametrize(("name", "make_loader"), list(loaders()))
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


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("stop_at", [2, 5, 6])
@pytest.mark.parametrize("again", ["same loader", "new loader"])
def test_persistent_workers_draw_the_same_order_after_a_resume(stop_at, again):
    def loader():
        data = TensorDataset(torch.arange(11.0))
        return DataLoader(data, 3, shuffle=True, num_workers=1, persistent_workers=True)

    def run(stops):
        torch.manual_seed(0)
        seen, mine = [], loader()
        engine = Engine(lambda state, batch: seen.append(noted(batch)))
        for iteration in stops:
            stop = Events.ITERATION_COMPLETED(at=iteration, once=True)
            engine.on(stop)(lambda state: state.stop("pause"))
        state = engine.run(mine, max_epochs=3)
        for _ in stops:
            engine.run(mine if again == "same loader" else loader(), state=state)
        return seen

    assert run([stop_at]) == run([])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_evaluating_over_the_training_data_leaves_persistent_workers_at_their_pass():
    data = TensorDataset(torch.arange(12.0))
    loader = DataLoader(data, 2, num_workers=1, persistent_workers=True)
    engine = Engine(lambda state, batch: None)
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: engine.evaluate(loader))
    assert engine.run(loader, max_epochs=1).iteration == 6


@pytest.mark.parametrize("limit", [{"max_iterations": 4}, {"max_steps": 4}, {}])
def test_a_limit_at_the_end_of_an_epoch_leaves_the_samplers_generator_where_it_would_be(limit):
    def process(state, batch):
        seen.append(noted(batch))
        state.fire(Events.STEP_COMPLETED)

    def loader():
        own = torch.Generator().manual_seed(5)
        return DataLoader(TensorDataset(torch.arange(11.0)), 3, shuffle=True, generator=own)

    seen = []
    Engine(process).run(loader(), max_iterations=12)
    whole, seen = seen, []
    engine, mine = Engine(process), loader()
    if not limit:
        engine.on(Events.ITERATION_COMPLETED(at=4))(lambda state: state.stop("x", resumable=True))
    state = engine.run(mine, **limit or {"max_epochs": 9})
    engine.run(mine, state=state, max_iterations=12, max_steps=99)
    assert seen == whole


def test_an_evaluation_does_not_tell_shared_data_that_another_epoch_begins():
    class Data(Dataset):
        epoch = None

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return self.epoch

    data, epochs = Data(), []
    engine = Engine(lambda state, batch: epochs.append(batch.item()) if state.training else None)
    engine.on(Events.ITERATION_COMPLETED)(lambda state: engine.evaluate(DataLoader(data)))
    engine.run(DataLoader(data), max_epochs=2)
    assert epochs == [0, 0, 0, 1, 1, 1]


def test_generators_that_come_and_go_are_told_of_and_stop_nobody(caplog):
    class Late(Dataset):
        generator = None

        def __len__(self):
            return 6

        def __getitem__(self, index):
            if self.generator is None:
                self.generator = torch.Generator()
            return index

    engine, batches = Engine(lambda state, batch: batches.append(batch.item())), []
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.stop("pause"))
    state = engine.run(DataLoader(Late()), max_epochs=1)
    engine.run(DataLoader(Late()), state=state)
    assert batches == [0, 1, 2, 3, 4, 5]
    assert "own random generators cannot be put back: it has 0 and had 1" in caplog.text


def test_between_epochs_other_data_may_follow():
    engine = Engine(lambda state, batch: None)
    state = engine.run(DataLoader(range(6)), max_epochs=1)
    engine.run(DataLoader(range(4), generator=torch.Generator()), state=state, max_epochs=2)
    assert state.iteration == 10


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_persistent_workers_of_unknown_length_can_be_evaluated_again_and_again():
    loader = DataLoader(Stream(), 3, num_workers=1, persistent_workers=True)

    with pytest.raises(TypeError):
        len(loader)
    engine = Engine(lambda state, batch: None)
    assert [engine.evaluate(data).iteration for data in (loader, loader)] == [3, 3]


def test_what_handlers_of_started_draw_is_drawn_once_in_a_run_however_often_it_is_carried_on():
    def drawn(*stops):
        torch.manual_seed(0)
        engine = Engine(lambda state, batch: seen.append((batch.tolist(), torch.rand(()).item())))
        seen, loader = [], DataLoader(torch.arange(11), 3, shuffle=True)
        engine.on(Events.STARTED)(lambda state: next(iter(loader)))  # a sample to look at, say
        for stop in stops:
            engine.on(Events.ITERATION_COMPLETED(at=stop, once=True))(lambda s: s.interrupt("x"))
        state = engine.run(loader, max_epochs=2)
        for _ in stops:
            engine.run(loader, state=state)
        return seen

    assert drawn(2, 4, 6) == drawn()


def test_a_run_that_fails_before_it_is_taken_up_can_still_be_carried_on_exactly():
    def drawn(fails):
        torch.manual_seed(0)
        engine = Engine(lambda state, batch: seen.append((batch.tolist(), torch.rand(()).item())))
        seen, loader = [], DataLoader(torch.arange(11), 3, shuffle=True)
        engine.on(Events.ITERATION_COMPLETED(at=2, once=True))(lambda s: s.interrupt("x"))
        state = engine.run(loader, max_epochs=2)

        def fail(state):
            raise OSError(f"no dashboard, and {torch.rand(())} has been drawn")

        if fails:
            engine.on(Events.STARTED)(fail)
            with pytest.raises(OSError, match="no dashboard"):
                engine.run(loader, state=state)
            engine.off(fail)
        engine.run(loader, state=state)
        return seen

    assert drawn(fails=True) == drawn(fails=False)
