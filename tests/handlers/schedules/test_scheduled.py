"""Schedules of pieces on parameter groups: any field, one schedule for each group."""

import pytest
import torch
from torch.optim import SGD, AdamW

from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, LRSchedule
from camshaft.handlers.schedules import hold, linear, warmup
from camshaft.handlers.schedules.scheduled import Scheduled


def groups(*options):
    return [{"params": [torch.nn.Parameter(torch.zeros(1))], **each} for each in options]


def script(*schedules, weight_decay=0.1, checkpoint=()):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = AdamW(model.parameters(), 0.1, weight_decay=weight_decay)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(*schedules, *checkpoint)
    rows, used = [], []

    @engine.on(Events.GRADIENTS_READY)
    def look(state):
        group = optimizer.param_groups[0]
        used.append((group["lr"], group["weight_decay"], group["betas"]))

    engine.on(Events.STEP_COMPLETED)(lambda state: rows.append(dict(state.metrics)))
    return engine, optimizer, used, rows


BATCHES = [(torch.ones(1, 2), torch.ones(1, 1))] * 4


def test_each_group_can_have_a_schedule_of_its_own():
    optimizer = SGD(groups({"lr": 0.05}, {"lr": 0.5}))
    scheduler = Scheduled(optimizer, [warmup(100, 0.2), warmup(100, 0.4)], None)
    assert scheduler.get_last_lr() == [pytest.approx(0.01), pytest.approx(0.2)]
    for _ in range(100):
        optimizer.step()
        scheduler.step()
    assert scheduler.get_last_lr() == [0.05, 0.5]
    with pytest.raises(ValueError, match="3 schedules and 2 parameter groups"):
        Scheduled(optimizer, [hold()] * 3, None)


def test_any_field_is_moved_beside_the_rate_and_logged_under_its_name():
    engine, _, used, rows = script(
        LRSchedule(linear()),
        LRSchedule(linear(final=2.0), field="weight_decay"),
        LRSchedule(linear(final=0.5), field="betas.0"),
    )
    engine.run(BATCHES, max_epochs=1)
    rates, decays, betas = zip(*used, strict=True)
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert decays == pytest.approx([0.1, 0.125, 0.15, 0.175])
    assert [beta[0] for beta in betas] == pytest.approx([0.9, 0.7875, 0.675, 0.5625])
    assert {beta[1] for beta in betas} == {0.999}
    for place, name in enumerate(("lr", "weight_decay")):
        assert [row[name] for row in rows] == [each[place] for each in used]
    assert [row["betas.0"] for row in rows] == [beta[0] for beta in betas]


@pytest.mark.parametrize("stop_at", [1, 6])
def test_every_field_is_resumed_exactly(stop_at, tmp_path):
    def schedules():
        return (
            LRSchedule(warmup(2).then(linear())),
            LRSchedule(linear(final=2.0), field="weight_decay"),
            LRSchedule(linear(final=0.5), field="betas.0"),
        )

    engine, _, expected, _ = script(*schedules())
    engine.run(BATCHES, max_epochs=2)
    first, _, used, _ = script(*schedules(), checkpoint=[Checkpoint(tmp_path)])
    first.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("pause"))
    first.run(BATCHES, max_epochs=2)
    second, _, more, _ = script(*schedules(), checkpoint=[Checkpoint(tmp_path, resume=True)])
    second.run(BATCHES, max_epochs=2)
    assert used + more == expected


def test_a_changed_start_of_a_field_is_told_and_followed_by_its_schedule_alone(tmp_path):
    def schedules():
        return LRSchedule(linear()), LRSchedule(linear(final=2.0), field="weight_decay")

    first, *_ = script(*schedules(), checkpoint=[Checkpoint(tmp_path)])
    first.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.interrupt("pause"))
    first.run(BATCHES, max_epochs=2)
    second, *_ = script(
        *schedules(), weight_decay=0.2, checkpoint=[Checkpoint(tmp_path, resume=True)]
    )
    said = "  optimizer.weight_decay: 0.1 in the checkpoint -> 0.2 in the script\n"
    with pytest.raises(ValueError, match=said):
        second.run(BATCHES, max_epochs=2)
    accepting = Checkpoint(tmp_path, resume=True, override=["optimizer.weight_decay"])
    third, _, used, _ = script(*schedules(), weight_decay=0.2, checkpoint=[accepting])
    third.run(BATCHES, max_epochs=2)
    whole, _, expected, _ = script(*schedules(), weight_decay=0.2)
    whole.run(BATCHES, max_epochs=2)
    assert used == expected[3:]


def test_a_tensor_rate_is_moved_in_place():
    rate = torch.tensor(0.5)
    engine, optimizer, *_ = script(LRSchedule(linear()))
    optimizer.param_groups[0]["lr"] = rate
    engine.run(BATCHES, max_epochs=1)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.0


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("dropout", "the parameter groups only have 'lr'"),
        ("betas", "choose one, as in 'betas.0'"),
        ("betas.2", "choose one, as in 'betas.0'"),
        ("amsgrad", "needs a field that is a number"),
    ],
)
def test_a_field_that_cannot_be_moved_is_refused(field, message):
    engine, *_ = script(LRSchedule(linear(), field=field))
    with pytest.raises(ValueError, match=message):
        engine.run(BATCHES, max_epochs=1)


def test_a_torch_scheduler_moves_the_rate_alone():
    optimizer = SGD(groups({"lr": 0.1}))
    with pytest.raises(ValueError, match="this StepLR moves 'lr'"):
        LRSchedule(torch.optim.lr_scheduler.StepLR(optimizer, 1), field="momentum")
