"""Where in the data a run is: carrying on draws the very same batches."""

import random

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from camshaft import Engine, Events


class Stream(IterableDataset):
    def __iter__(self):
        return (index + random.random() for index in range(7))


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


def test_a_mistake_in_the_datas_length_is_not_taken_for_data_without_one():
    class Mistaken(list):
        def __len__(self):
            return mth.ceil(2.5)  # noqa: F821

    with pytest.raises(NameError, match="mth"):
        Engine(lambda state, batch: None).run(Mistaken([1, 2]), max_epochs=1)


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
def test_evaluating_over_the_training_data_leaves_persistent_workers_at_their_pass():
    data = TensorDataset(torch.arange(12.0))
    loader = DataLoader(data, 2, num_workers=1, persistent_workers=True)
    engine = Engine(lambda state, batch: None)
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: engine.evaluate(loader))
    assert engine.run(loader, max_epochs=1).iteration == 6


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
