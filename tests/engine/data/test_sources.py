"""Data of every kind is taken up where it was left."""

import logging

import pytest
import torch
from torch.utils.data import DataLoader as Loaded
from torch.utils.data import Dataset, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from camshaft import Engine, Events, State
from camshaft.engine.data import source_of
from camshaft.engine.data.dataloader.loader import IndexedLoader
from camshaft.engine.data.sources import Source, Stateful

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.set_vital. is deprecated"),  # by torchdata 0.11
]


class Counting(Dataset):
    calls = 0

    def __len__(self):
        return 23

    def __getitem__(self, index):
        type(self).calls += 1
        return float(index)


class Cursor:
    """Data that knows its own place."""

    def __init__(self):
        self.at = 0
        self.begun = 0

    def __iter__(self):
        self.begun += 1
        while self.at < 5:
            self.at += 1
            yield self.at
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, saved):
        self.at = saved["at"]


def seen_in(make, stops=(), **arguments):
    torch.manual_seed(0)
    seen = []

    def process(state, batch):
        batch = batch.tolist() if isinstance(batch, torch.Tensor) else batch
        seen.append((batch, torch.rand(()).item()))

    engine = Engine(process)
    for stop in stops:
        engine.on(Events.ITERATION_COMPLETED(at=stop, once=True))(lambda state: state.stop("pause"))
    state = engine.run(make(), max_epochs=3, **arguments)
    for stop in stops:
        torch.manual_seed(stop + 50)
        saved = state.state_dict()
        state = type(state)(max_epochs=3)  # as in a new process
        state.load_state_dict(saved)
        state.control.resumable, state.stop_reason = True, None
        state = engine.run(make(), state=state, **arguments)
    assert state.stop_reason == "max_epochs"
    return seen


def test_each_kind_of_data_has_its_way():
    assert type(source_of([1, 2])) is Source
    assert type(source_of(Cursor())) is Stateful
    assert type(source_of(type("Told", (list,), {"state_dict": dict})())) is Source
    assert type(source_of(StatefulDataLoader(Counting()))) is Stateful
    assert type(source_of(torch.utils.data.DataLoader(Counting()))) is IndexedLoader


@pytest.mark.parametrize("stop", range(1, 15))
def test_data_with_a_place_of_its_own_is_asked_for_it(stop):
    assert seen_in(Cursor, [stop]) == seen_in(Cursor)


def test_data_with_a_place_of_its_own_can_be_left_again_and_again():
    assert seen_in(Cursor, [2, 3, 5, 11]) == seen_in(Cursor)
    assert seen_in(Cursor, [2, 3, 5], epoch_length=3) == seen_in(Cursor, epoch_length=3)


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


STOPS = [
    [3, 4, 9],
    *(pytest.param(each, marks=pytest.mark.slow) for each in ([1], [4], [6], [12, 17])),
]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stops", STOPS, ids=str)
def test_torchdatas_loader_is_asked_for_its_place(workers, stops):
    def make():
        return StatefulDataLoader(Counting(), 4, shuffle=True, num_workers=workers)

    assert seen_in(make, stops) == seen_in(make)


def test_torchdatas_loader_loads_none_of_what_was_seen():
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
    loader, plain = (kind(Counting(), 4, sampler=sampler) for kind in (StatefulDataLoader, Loaded))
    engine = Engine(lambda state, batch: None)
    with caplog.at_level(logging.WARNING, "camshaft"):
        engine.evaluate(plain)
        assert not caplog.records
        for _ in range(2):
            engine.evaluate(loader)
            engine.run(loader, max_epochs=1)
    said = [each.message for each in caplog.records]
    assert len(said) == bool(repeated)
    assert all("StatefulDataLoader hands out 1 of 23 samples twice" in each for each in said)


def test_torchdatas_loader_with_workers_says_what_its_state_does_not_hold(caplog):
    engine = Engine(lambda state, batch: None)
    engine.on(Events.SAVING)(lambda state: None)
    engine.on(Events.EPOCH_COMPLETED)(lambda state: state.save("end"))
    with caplog.at_level(logging.WARNING, "camshaft"):
        engine.run(StatefulDataLoader(Counting(), 4, num_workers=1), max_epochs=1)
    assert "workers of a StatefulDataLoader draw are not in its state" in caplog.text


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
