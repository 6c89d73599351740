"""Rates without a schedule, as the rows of logs have them."""

import json

import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from camshaft import Engine, Events, Stage
from camshaft.handlers import ConsoleLines, JSONLines, LRSchedule, Validate

EACH = Events.ITERATION_COMPLETED


def rows_of(tmp_path, objects, *handlers, measure=True, when=EACH):
    def process(state, batch):
        if measure:
            state.metrics["loss"] = 1.0

    engine = Engine(process, *handlers, objects=objects)
    engine.add(JSONLines(tmp_path / "rows", when=when))
    engine.run([1, 2], max_epochs=2)
    return [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]


def sgd(rate):
    return SGD([torch.nn.Parameter(torch.zeros(()))], rate)


def test_the_rate_of_the_only_optimizer_is_lr_whatever_it_is_called(tmp_path):
    for name in ("optimizer", "critic_optimizer", "adam"):
        assert [row["lr"] for row in rows_of(tmp_path / name, {name: sgd(0.1)})] == [0.1] * 4


def test_each_of_several_optimizers_has_a_rate_by_its_name(tmp_path):
    objects = {"optimizer": sgd(0.1), "critic_optimizer": sgd(0.2), "adam": sgd(0.3)}
    for row in rows_of(tmp_path, objects):
        assert (row["lr"], row["lr/critic"], row["lr/adam"]) == (0.1, 0.2, 0.3)


def test_a_rate_that_a_schedule_moves_is_the_schedules(tmp_path):
    critic = sgd(1.0)
    schedule = LRSchedule(StepLR(critic, 1, 0.5), when=EACH, name="other")
    critic.step()  # torch warns of a schedule that moves before its optimizer
    for row in rows_of(tmp_path, {"optimizer": sgd(0.1), "critic_optimizer": critic}, schedule):
        assert row["lr"] == 0.1
        assert row["lr/other"] == 0.5 ** (row["iteration"] - 1)
        assert "lr/critic" not in row


def test_a_rate_that_the_script_changes_is_logged_as_it_is(tmp_path):
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(()))], torch.tensor(0.5))

    class Halve:
        def attach(self, engine):
            engine.on(Events.EPOCH_STARTED(at=2))(lambda state: self.halve())

        def halve(self):
            optimizer.param_groups[0]["lr"].mul_(0.5)

    rows = rows_of(tmp_path, {"optimizer": optimizer}, Halve())
    assert [row["lr"] for row in rows] == [0.5, 0.5, 0.25, 0.25]


def test_a_metric_of_the_users_own_that_is_called_lr_stays_his(tmp_path):
    class Own:
        def attach(self, engine):
            engine.on(EACH, stage=Stage.MEASURE)(self.measure)

        def measure(self, state):
            state.metrics["lr"] = 7.0

    assert {row["lr"] for row in rows_of(tmp_path, {"optimizer": sgd(0.1)}, Own())} == {7.0}


def test_a_rate_makes_no_row_and_is_once_in_an_iteration(tmp_path):
    model = torch.nn.Linear(1, 1)
    objects = {"model": model, "optimizer": SGD(model.parameters(), 0.1)}
    assert rows_of(tmp_path / "none", objects, measure=False) == []
    rows = rows_of(tmp_path, objects, Validate([1], name="val"), when=EACH | Events.EPOCH_COMPLETED)
    found = [(row["iteration"], "lr" in row, "val/loss" in row) for row in rows]
    assert found == [
        *((1, True, False), (2, True, False), (2, False, True)),
        *((3, True, False), (4, True, False), (4, False, True)),
    ]


def test_a_console_line_shows_a_constant_rate_that_is_asked_for():
    shown = []
    engine = Engine(lambda state, batch: None, objects={"optimizer": sgd(0.1)})
    engine.add(ConsoleLines("lr", when=EACH, write=shown.append))
    engine.run([1], max_epochs=1)
    assert shown == ["iteration 1/1  epoch 1/1  lr 0.1"]
