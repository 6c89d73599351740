"""Schedulers that are told of updates and epochs: timm's own, and one of the same protocol."""

import importlib
import importlib.util
import sys
import types

import pytest
import torch

from camshaft import Events, Stage, supervised
from camshaft.handlers import LRSchedule
from camshaft.handlers.checkpoint.load import changes, settings_of


class Told:
    """The protocol, as small as it can be."""

    def __init__(self, optimizer, total, by_epochs=False):
        self.optimizer, self.total, self.by_epochs = optimizer, total, by_epochs
        self.base_values = [group["lr"] for group in optimizer.param_groups]
        self.seen = []

    def _go(self, place):
        for group, base in zip(self.optimizer.param_groups, self.base_values, strict=True):
            group["lr"] = base * (1 - place / self.total)

    def step_update(self, num_updates, metric=None):
        if not self.by_epochs:
            self._go(num_updates)

    def step(self, epoch, metric=None):
        self.seen.append((epoch, metric))
        if self.by_epochs:
            self._go(epoch)

    def state_dict(self):
        return {"total": self.total, "base_values": self.base_values, "seen": self.seen}

    def load_state_dict(self, saved):
        self.__dict__.update(saved)


def timm():
    """Timm's schedulers: without the rest of it, which needs torchvision."""
    if "timm.scheduler" in sys.modules:
        return sys.modules["timm.scheduler"]
    if (found := importlib.util.find_spec("timm")) is None:
        pytest.skip("timm is not installed")
    package = sys.modules["timm"] = types.ModuleType("timm")
    package.__path__ = list(found.submodule_search_locations)
    return importlib.import_module("timm.scheduler")


KINDS = {
    "protocol": lambda o, horizon: Told(o, horizon.steps),
    "protocol by epochs": lambda o, horizon: Told(o, horizon.epochs, by_epochs=True),
    "timm cosine": lambda o, horizon: timm().CosineLRScheduler(
        o, horizon.steps, 0.01, warmup_t=3, warmup_lr_init=0.001, t_in_epochs=False
    ),
    "timm cosine by epochs": lambda o, horizon: timm().CosineLRScheduler(
        o, horizon.epochs, warmup_t=1
    ),
    "timm steps with noise": lambda o, horizon: timm().StepLRScheduler(
        o, 4, 0.5, t_in_epochs=False, noise_range_t=(2, 9)
    ),
    "timm tanh": lambda o, horizon: timm().TanhLRScheduler(o, horizon.steps, t_in_epochs=False),
    "timm polynomial": lambda o, horizon: timm().PolyLRScheduler(
        o, horizon.steps, t_in_epochs=False
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_update_and_each_epoch_is_told_as_in_a_loop_written_by_hand(script, kind):
    _, used, _ = script(KINDS[kind]).run(max_epochs=4)

    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    horizon = types.SimpleNamespace(steps=12, epochs=4)
    scheduler, expected, updates = KINDS[kind](optimizer, horizon), [], 0
    for epoch in range(4):
        for _ in range(3):
            expected.append(optimizer.param_groups[0]["lr"])
            updates += 1
            scheduler.step_update(updates)
        scheduler.step(epoch + 1)
    assert used == expected
    assert len(set(used)) > 2


@pytest.mark.quick(kind=1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop_at", [5, 12])
def test_a_resumed_run_has_the_same_rates(script, kind, stop_at, tmp_path):
    _, expected, _ = script(KINDS[kind]).run(max_epochs=4)
    _, used, _ = script(KINDS[kind], stop_at=stop_at, directory=tmp_path).run(max_epochs=4)
    _, more, _ = script(KINDS[kind], directory=tmp_path).run(max_epochs=4)
    assert used + more == expected


def test_a_changed_setting_is_told_and_an_override_follows_it(script, tmp_path):
    make = KINDS["timm cosine"]
    script(make, stop_at=8, directory=tmp_path).run(max_epochs=4)
    said = "scheduler.0.t_initial: 12 in the checkpoint -> 18 in the script"
    with pytest.raises(ValueError, match=said):
        script(make, directory=tmp_path).run(max_epochs=6)
    _, used, _ = script(make, directory=tmp_path, override=["scheduler"]).run(max_epochs=6)
    _, expected, _ = script(make).run(max_epochs=6)
    assert used == expected[-len(used) :]


def test_one_that_is_ready_made_is_taken_too_and_may_look_at_a_metric():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    told = Told(optimizer, 10)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(LRSchedule(told, metric="score"))

    @engine.on(Events.EPOCH_COMPLETED, stage=Stage.MEASURE)
    def score(state):
        state.metrics["score"] = 0.5 * state.epoch

    state = engine.run([(torch.ones(1, 2), torch.zeros(1, 1))] * 5, max_epochs=2)
    assert told.seen == [(1, 0.5), (2, 1.0)]
    assert state.metrics["lr"] == pytest.approx(0.01)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0)


def test_another_field_is_said_to_the_handler_as_well():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1, momentum=0.9)
    scheduler = timm().CosineLRScheduler(optimizer, 5, t_in_epochs=False)
    scheduler.param_group_field = "momentum"
    with pytest.raises(ValueError, match="moves 'momentum'"):
        LRSchedule(scheduler)
    assert LRSchedule(scheduler, field="momentum").written_metric == "momentum"


def test_progress_is_no_setting(script):
    made = script(KINDS["timm cosine by epochs"])
    compared = []
    objects = made.engine.objects
    made.engine.on(Events.STARTED)(lambda state: compared.append(settings_of(objects)))
    made.run(max_epochs=4)
    compared.append(settings_of(objects))
    assert changes(*compared) == []
