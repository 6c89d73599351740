"""The end of a schedule: it is the end of the run, whatever batches its epochs have."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from camshaft import Events, Update, supervised
from camshaft.handlers import Checkpoint, LRSchedule
from camshaft.handlers.schedules import ScheduleEvents, cosine, hold, linear, warmup

BATCHES = [(torch.ones(1, 1) * number / 12, torch.zeros(1, 1)) for number in range(12)]


class Says:
    """A loader that says a number of batches, and gives another one."""

    def __init__(self, said, given):
        self.said, self.given = said, given

    def __len__(self):
        return self.said

    def __iter__(self):
        return iter(BATCHES[: self.given])


def follow(schedule, *, directory=None, **settings):
    """An engine, and the list of the rates of its steps."""
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    engine = supervised(model, optimizer, nn.functional.mse_loss, **settings)
    engine.add(LRSchedule(schedule))
    if directory is not None:
        engine.add(Checkpoint(directory, resume=True))
    rates: list[float] = []
    engine.on(Events.STEP_COMPLETED)(lambda state: rates.append(state.metrics["lr"]))
    return engine, rates


def rises(rates):
    return [after - before for before, after in pairwise(rates)]


@pytest.mark.parametrize(("first", "second"), [(12, 6), (6, 12), (5, 12)])
def test_a_stage_with_epochs_of_another_length_is_trained_up_to_its_end(first, second):
    engine, rates = follow(linear(final=0.0))
    state = engine.run(BATCHES[:first], max_epochs=2)
    state = engine.run(BATCHES[:second], max_epochs=4, state=state)
    total = 2 * first + 2 * second
    expected = [1 - step / total for step in range(2 * first, total)]
    assert rates[2 * first :] == pytest.approx(expected)


class Sized(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, number):
        return BATCHES[number][0][0], BATCHES[number][1][0]


@pytest.mark.parametrize(("before", "after"), [(12, 6), (6, 12)])
def test_data_of_another_size_in_mid_run_bend_the_schedule_without_a_jump(before, after, caplog):
    data = Sized(before)
    engine, rates = follow(linear(final=0.0))
    engine.on(Events.EPOCH_COMPLETED(at=2))(lambda state: setattr(data, "size", after))
    engine.run(DataLoader(data, 1), max_epochs=4)
    assert len(rates) == 2 * before + 2 * after
    assert rises(rates)[: 2 * before] == pytest.approx([-1 / (4 * before)] * 2 * before)
    rest = rises(rates)[2 * before :]
    assert rest == pytest.approx([-1 / (4 * after)] * len(rest))
    assert rates[-1] == pytest.approx(1 / (4 * after))
    assert not caplog.messages  # the data said so before the epoch


class Stream(IterableDataset):
    def __len__(self):
        return 18

    def __iter__(self):
        info = get_worker_info()
        for number in range(info.id, len(self), info.num_workers):
            yield torch.full((1,), number / 20), torch.zeros(1)


@pytest.mark.slow
def test_a_right_length_of_which_each_worker_makes_a_short_last_batch_does_not_end_too_early():
    engine, rates = follow(linear(final=0.0))
    loader = DataLoader(Stream(), 4, num_workers=2)
    engine.run(loader, max_epochs=3)
    assert (len(loader), len(rates)) == (5, 18)
    assert all(rise < 0 for rise in rises(rates))
    assert min(rates) > 0
    assert engine.objects["scheduler"].get_last_lr() == [0.0]


LENGTHS = [(10, 5, 1), (3, 5, 1), (4, 6, 3), (3, 12, 1)]


@pytest.mark.parametrize(("said", "given", "accumulate"), LENGTHS)
def test_a_wrong_length_is_told_once_and_corrected_from_the_next_epoch_on(
    said, given, accumulate, caplog
):
    engine, rates = follow(warmup(1).then(cosine()), accumulate=accumulate)
    engine.run(Says(said, given), max_epochs=4)
    assert rates[-1] > 0
    assert engine.objects["scheduler"].get_last_lr() == [0.0]
    [message] = [text for text in caplog.messages if "other batches" in text]
    assert f"epoch 1 had other batches than the {said} that the data said" in message
    assert f"a run of {len(rates)} steps" in message


MADE = {
    "pieces": warmup(2).then(cosine()),
    "one cycle": lambda optimizer, horizon: OneCycleLR(optimizer, 1.0, horizon.steps),
    "a closure": lambda optimizer, horizon: LambdaLR(optimizer, lambda n: 1 - n / horizon.steps),
}


@pytest.mark.quick(made=1)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.parametrize(("said", "given"), [(10, 5), (5, 6)])
def test_a_resumed_run_has_the_rates_of_the_whole_run_also_of_a_wrong_length(
    made, said, given, tmp_path
):
    build = partial(follow, made)
    engine, whole = build()
    engine.run(Says(said, given), max_epochs=3)
    assert whole[-1] < 0.2
    for at in (2, given, given + 1, 2 * given, 2 * given + 2):
        first, before = build(directory=tmp_path / str(at))
        first.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.interrupt("enough"))
        first.run(Says(said, given), max_epochs=3)
        second, after = build(directory=tmp_path / str(at))
        second.run(Says(said, given), max_epochs=3)
        assert before + after == whole


class Growing:
    """Batches of a sampler's, as many as its epoch has."""

    def __init__(self, lengths):
        self.lengths = lengths
        self.set_epoch(0)

    def set_epoch(self, epoch):
        self.length = self.lengths[epoch]

    def __len__(self):
        return self.length

    def __iter__(self):
        return iter([[number] for number in range(self.length)])


def test_a_resumed_run_has_the_rates_of_the_whole_run_where_each_epoch_has_another_length(tmp_path):
    def build(directory=None, stop=None):
        engine, rates = follow(warmup(2).then(cosine()), directory=directory)
        if stop:
            engine.on(Events.ITERATION_COMPLETED(at=stop))(lambda state: state.interrupt("enough"))
        engine.run(DataLoader(BATCHES, batch_sampler=Growing([6, 4, 2, 5])), max_epochs=4)
        return rates

    whole = build()
    for at in (5, 6, 8, 10, 11, 12, 15):
        assert build(tmp_path / str(at), at) + build(tmp_path / str(at)) == whole


class Grows(Dataset):
    samples = 5

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return BATCHES[index][0][0], BATCHES[index][1][0]


def test_a_resumed_run_has_the_rates_of_the_whole_run_where_the_data_set_grows_in_an_epoch(
    tmp_path,
):
    def build(directory=None, stop=None):
        engine, rates = follow(warmup(2).then(cosine()), directory=directory)
        data = Grows()

        @engine.on(Events.ITERATION_COMPLETED)
        def grow(state):
            if state.iteration == 7:
                data.samples = 9
            if state.iteration == stop:
                state.interrupt("enough")

        engine.run(DataLoader(data, 1), max_epochs=4)
        return rates

    whole = build()
    assert len(whole) == 28
    for at in (6, 8, 10, 12):
        assert build(tmp_path / str(at), at) + build(tmp_path / str(at)) == whole


def test_an_epoch_that_a_handler_ends_is_shorter_and_so_is_the_run():
    engine, rates = follow(linear(final=0.0))
    at = Events.ITERATION_COMPLETED(where=lambda state: state.iteration_in_epoch == 4)
    engine.on(at)(lambda state: state.stop_epoch())
    engine.run(BATCHES, max_epochs=5)
    assert len(rates) == 20
    assert all(rise < 0 for rise in rises(rates))
    assert engine.objects["scheduler"].get_last_lr() == [0.0]


def test_the_end_by_steps_and_skipped_steps_change_no_schedule(caplog):
    engine, rates = follow(linear(final=0.0))
    engine.run(Says(10, 5), max_steps=20)
    assert rates == pytest.approx([1 - step / 20 for step in range(20)])
    engine, rates = follow(linear(final=0.0))
    skipped = Events.BACKWARD_COMPLETED(every=4)
    engine.on(skipped)(lambda state: state.skip_step())
    engine.run(BATCHES, max_epochs=2)
    assert rates == pytest.approx([1 - step / 24 for step in range(18)])
    assert not caplog.messages


def test_a_script_that_says_the_steps_of_the_run_has_the_last_word(caplog):
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(LRSchedule(linear(final=0.0), horizon=40))
    engine.run(Says(10, 5), max_epochs=4)
    assert engine.objects["scheduler"].get_last_lr() == [0.5]


def test_another_accumulation_from_an_epoch_on_ends_with_the_run_too():
    engine, rates = follow(linear(final=0.0))
    [update] = (each for each in engine.handlers.values() if isinstance(each, Update))
    engine.on(Events.EPOCH_STARTED(at=3))(lambda state: setattr(update, "accumulate", 3))
    engine.run(BATCHES, max_epochs=4)
    assert len(rates) == 2 * 12 + 2 * 4
    assert engine.objects["scheduler"].get_last_lr() == [0.0]
    assert all(rise < 0 for rise in rises(rates))


def test_each_piece_is_announced_once_also_where_its_end_has_moved():
    engine, _ = follow(warmup(0.25).then(hold(0.5)).then(linear(final=0.0)))
    ends: list[int] = []
    engine.on(ScheduleEvents.PIECE_COMPLETED)(lambda state: ends.append(state.step))
    engine.run(Says(10, 6), max_epochs=4)
    assert ends == [9, 19, 24]


@pytest.mark.parametrize("field", ["lr", "weight_decay"])
def test_a_group_that_is_added_in_mid_run_follows_the_pieces_by_a_value_of_its_own(field, tmp_path):
    def run(directory, stop_at=None):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))
        model[0].requires_grad_(False)
        optimizer = torch.optim.SGD(model[1].parameters(), lr=1.0, weight_decay=1.0)
        engine = supervised(model, optimizer, nn.functional.mse_loss)
        added = {"params": [*model[0].parameters()], "lr": 0.1, "weight_decay": 0.1}
        engine.add(LRSchedule(linear(final=0.0), field=field), Checkpoint(directory, resume=True))
        seen: list[list[float]] = []

        @engine.on(Events.EPOCH_STARTED(at=3))
        def unfreeze(state):
            model[0].requires_grad_(True)
            optimizer.add_param_group(added)

        @engine.on(Events.STEP_COMPLETED)
        def look(state):
            seen.append([group[field] for group in optimizer.param_groups])

        if stop_at is not None:
            engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("now"))
        engine.run(BATCHES[:5], max_epochs=4)
        return seen

    whole = run(tmp_path / "whole")
    expected = [1 - step / 20 for step in range(1, 21)]
    assert [row[0] for row in whole] == pytest.approx(expected)
    assert [row[1] for row in whole[10:]] == pytest.approx([each / 10 for each in expected[10:]])
    assert run(tmp_path / "parts", 8) + run(tmp_path / "parts") == whole
