"""Data that cannot begin again, data that gives no batch, and data sets in the place of batches."""

import logging

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from camshaft import Engine, Events, supervised
from camshaft.handlers import Checkpoint, Validate

MOMENTS = (Events.EPOCH_STARTED, Events.EPOCH_COMPLETED, Events.COMPLETED, Events.FAILED)


def recording():
    """An engine, and what it does: batches, and the events of epochs with their number."""
    seen = []
    engine = Engine(lambda state, batch: seen.append(batch))
    for event in MOMENTS:
        engine.on(event)(lambda state, event=event: seen.append((event, state.epoch)))
    return engine, seen


def epoch(number, batches):
    return [(Events.EPOCH_STARTED, number), *batches, (Events.EPOCH_COMPLETED, number)]


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"max_epochs": 3}, "max_epochs=3"),
        ({"max_iterations": 7}, "max_iterations=7"),
        ({"max_steps": 9, "max_epochs": 2}, "max_epochs=2 and max_steps=9"),
    ],
)
def test_where_an_iterator_ends_the_run_is_over_and_the_limit_not_reached_is_named(
    limits, named, caplog
):
    engine, seen = recording()
    state = engine.run(iter("abc"), **limits)
    assert seen == [*epoch(1, "abc"), (Events.COMPLETED, 1)]
    assert (state.stop_reason, state.epoch, state.iteration) == ("data_ended", 1, 3)
    (record,) = [each for each in caplog.records if "the data ended" in each.message]
    assert record.levelno == logging.WARNING
    assert f"after 1 epochs, 3 iterations and 0 steps, before {named}: it is an" in record.message


@pytest.mark.parametrize("limits", [{"max_epochs": 1}, {"max_iterations": 3}])
def test_a_limit_that_is_reached_with_the_last_batch_is_the_reason(limits, caplog):
    state = recording()[0].run(iter("abc"), **limits)
    assert state.stop_reason == next(iter(limits))
    assert not caplog.records


class Rewound:
    """A loader as written of old: its `__iter__` rewinds it and returns itself."""

    def __iter__(self):
        self.left = list("abc")
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop(0)


def test_an_iterator_that_its_own_iter_rewinds_begins_again(caplog):
    engine, seen = recording()
    state = engine.run(Rewound(), max_epochs=3)
    assert seen == [*epoch(1, "abc"), *epoch(2, "abc"), *epoch(3, "abc"), (Events.COMPLETED, 3)]
    assert (state.stop_reason, caplog.messages) == ("max_epochs", [])


def test_a_run_resumes_in_the_middle_of_an_epoch_of_such_an_iterator(tmp_path):
    whole, halves = [], []
    Engine(lambda state, batch: whole.append(batch)).run(Rewound(), max_epochs=3)
    for limit in (5, 9):
        engine = Engine(lambda state, batch: halves.append(batch))
        engine.objects["weights"] = nn.Linear(1, 1)
        engine.add(Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED(every=5), resume=True))
        engine.run(Rewound(), max_epochs=3, max_iterations=limit)
    assert halves == whole


def test_one_with_an_iter_of_its_own_that_does_not_rewind_ends_the_run():
    class Spent(Rewound):
        left = list("abc")  # noqa: RUF012

        def __iter__(self):
            return self

    engine, seen = recording()
    state = engine.run(Spent(), max_epochs=3)
    assert (state.stop_reason, state.epoch, state.iteration) == ("data_ended", 1, 3)
    assert seen[-1] == (Events.COMPLETED, 1)


@pytest.mark.parametrize("nothing", [None, 3])
def test_data_that_gives_no_batches_is_told_before_the_run(nothing):
    engine, seen = recording()
    for pass_over in (engine.evaluate, lambda data: engine.run(data, max_epochs=1)):
        with pytest.raises(TypeError, match=f"the data is {nothing}; it has to give batches"):
            pass_over(nothing)
    assert seen == []


def test_a_virtual_epoch_that_the_data_cuts_short_is_completed_as_it_is():
    engine, seen = recording()
    state = engine.run(iter("abcde"), max_epochs=4, epoch_length=3)
    assert seen == [*epoch(1, "abc"), *epoch(2, "de"), (Events.COMPLETED, 2)]
    assert state.stop_reason == "data_ended"


@pytest.mark.parametrize("option", ["epoch_length", "max_batches"])
def test_an_epoch_that_finds_no_batch_has_not_begun(option):
    engine, seen = recording()
    engine.on(Events.COMPLETED)(lambda state: state.metrics.update(best=0.5))
    state = engine.run(iter("abcdef"), max_epochs=4, **{option: 3})
    assert seen == [
        *epoch(1, "abc"),
        *epoch(2, "def"),
        (Events.EPOCH_STARTED, 3),
        (Events.COMPLETED, 2),
    ]
    assert (state.stop_reason, state.epoch) == ("data_ended", 2)
    assert state.metrics.clocks("best") == (6, 0, 2)


@pytest.mark.parametrize("first", ["abcd", "abcdef"])
def test_more_data_carries_virtual_epochs_on(first):
    engine, seen = recording()
    state = engine.run(iter(first), max_epochs=4, epoch_length=3)
    assert (state.stop_reason, state.epoch) == ("data_ended", 2)
    seen.clear()
    state = engine.run(iter("ghij"), state=state, epoch_length=3)
    assert seen == [*epoch(3, "ghi"), *epoch(4, "j"), (Events.COMPLETED, 4)]
    assert state.stop_reason == "max_epochs"


def test_more_data_carries_the_run_on():
    engine, seen = recording()
    state = engine.run(iter("abc"), max_epochs=3)
    state = engine.run(iter("de"), state=state)
    assert (state.stop_reason, state.epoch, state.iteration) == ("data_ended", 2, 5)
    seen.clear()
    engine.run(iter(""), state=state)
    assert seen == [(Events.EPOCH_STARTED, 3), (Events.COMPLETED, 2)]
    assert state.stop_reason == "data_ended"


def test_an_iterator_that_the_script_makes_longer_goes_on_behind_its_former_end(tmp_path):
    seen = []
    for letters, epochs in (("abc", 1), ("abcde", 2), ("abcde", 3)):
        engine = Engine(lambda state, batch: seen.append(batch))
        engine.objects["weights"] = nn.Linear(1, 1)
        engine.add(Checkpoint(tmp_path, resume=True))
        state = engine.run(iter(letters), max_epochs=epochs)
    assert (seen, state.stop_reason) == ([*"abcde"], "data_ended")


def test_data_that_can_begin_again_does_so():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(5))

    state = Engine(lambda state, batch: None).run(DataLoader(Stream(), 2), max_epochs=3)
    assert (state.stop_reason, state.iteration) == ("max_epochs", 9)


def train(directory, interrupt_at=None):
    """A run over a generator that ends after 7 batches, in windows of 2."""
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    engine = supervised(
        model, torch.optim.SGD(model.parameters(), 0.1), torch.nn.functional.mse_loss, accumulate=2
    )
    engine.add(Checkpoint(directory, resume=True))
    if interrupt_at:
        stop = Events.ITERATION_COMPLETED(at=interrupt_at)
        engine.on(stop)(lambda state: state.interrupt("a signal"))
    torch.manual_seed(2)
    data = ((torch.randn(3, 4), torch.randn(3, 1)) for _ in range(7))
    state = engine.run(data, max_steps=100)
    return state, model.weight.detach()


@pytest.mark.parametrize("interrupt_at", [2, 5, 7])
def test_such_a_run_resumes_exactly_and_is_over_when_started_again(interrupt_at, tmp_path, caplog):
    whole, weight = train(tmp_path / "whole")
    assert (whole.stop_reason, whole.iteration, whole.step) == ("data_ended", 7, 4)
    assert train(tmp_path / "parts", interrupt_at)[0].is_interrupted
    state, again = train(tmp_path / "parts")
    assert (state.stop_reason, state.iteration, state.step) == ("data_ended", 7, 4)
    assert torch.equal(again, weight)
    state, again = train(tmp_path / "parts")
    assert "nothing to run: the run is over (data_ended)" in caplog.text
    assert (state.stop_reason, state.iteration) == ("data_ended", 7)
    assert torch.equal(again, weight)


USED_UP = r"found no batch: the data is an iterator with nothing left, such as a generator that an"


def test_an_iterator_that_has_nothing_to_begin_with_is_an_error():
    used = iter("ab")
    engine, _ = recording()
    engine.run(used, max_epochs=1)
    for data in (used, iter([])):
        for options in ({}, {"epoch_length": 2}):
            with pytest.raises(ValueError, match=f"epoch 1 {USED_UP}"):
                engine.run(data, max_epochs=2, **options)


def test_a_generator_that_validates_twice_is_told_what_training_is_told():
    engine, _ = recording()
    engine.add(Validate(letter for letter in "xy"))
    with pytest.raises(ValueError, match=rf"the evaluation {USED_UP}.*Pass something that can"):
        engine.run("abc", max_epochs=2)
    used = iter("x")
    engine.evaluate(used)
    with pytest.raises(ValueError, match=f"the evaluation {USED_UP}"):
        engine.evaluate(used)


def test_a_collection_that_hands_out_one_iterator_twice_is_told_so():
    class Once:
        letters = iter("abc")

        def __iter__(self):
            return self.letters

    with pytest.raises(ValueError, match="epoch 2 found no batch: the Once gave batches in an ear"):
        recording()[0].run(Once(), max_epochs=2)


SAMPLES = TensorDataset(torch.arange(6.0))


@pytest.mark.parametrize("data", [SAMPLES, Subset(SAMPLES, [0, 1])])
def test_a_data_set_in_the_place_of_a_loader_is_refused(data):
    engine, seen = recording()
    for run in (lambda: engine.run(data, max_epochs=1), lambda: engine.evaluate(data)):
        with pytest.raises(TypeError, match=r"write DataLoader\(dataset, batch_size=32\)"):
            run()
    with pytest.raises(TypeError, match=f"the data is a {type(data).__name__}, so each of its"):
        engine.add(Validate(data))
    assert seen == []
    engine.run(DataLoader(data, batch_size=None), max_epochs=1)  # its items are the batches
    assert len(seen) == len(data) + 3


def test_a_stream_in_the_place_of_a_loader_may_give_batches_and_is_told():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter("ab")

    engine, seen = recording()
    with pytest.warns(UserWarning, match="the data is a Stream, so each of its items is taken"):
        engine.run(Stream(), max_epochs=1)
    assert seen == [*epoch(1, "ab"), (Events.COMPLETED, 1)]
