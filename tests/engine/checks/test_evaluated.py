"""Metrics of an evaluation that nothing averages, and modules that it leaves in training mode."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import Average, Metrics, Validate

LAST = "the metric 'loss' of an evaluation is that of its last batch alone"


def per_batch(state, batch):
    state.metrics["loss"] = torch.tensor(batch)
    return {"loss": batch}


def test_a_validation_whose_loss_is_that_of_the_last_batch_is_told_with_what_to_add():
    engine = Engine(per_batch, Validate([1.0, 5.0]))
    with pytest.warns(UserWarning, match=LAST) as found:
        engine.run([1.0], max_epochs=1)
    assert "engine.add(Average('loss'))" in str(found[0].message)
    assert found[0].filename == __file__


def test_an_evaluation_by_itself_is_told_too():
    with pytest.warns(UserWarning, match=LAST):
        assert Engine(per_batch).evaluate([1.0, 5.0]).metrics["loss"] == 5.0


@pytest.mark.parametrize(("samples", "drop_last"), [(10, True), (9, True), (10, False)])
def test_samples_that_a_loader_drops_from_an_evaluation_are_told(samples, drop_last, recwarn):
    model = nn.Linear(1, 1)
    data = TensorDataset(torch.ones(samples, 1), torch.ones(samples, 1))
    loader = DataLoader(data, 3, drop_last=drop_last)
    engine = supervised(model, torch.optim.SGD(model.parameters()), nn.functional.mse_loss)
    engine.run(loader, max_epochs=1)  # in training, the other samples of the next epoch are left
    engine.evaluate(loader, epoch_length=1)  # which leaves out more by itself
    assert not recwarn.list
    engine.evaluate(loader)
    told = ["leaves out 1 of its 10 samples" in str(each.message) for each in recwarn]
    assert told == [True] * (samples == 10 and drop_last)


def test_what_is_averaged_is_not_told():
    engine = Engine(per_batch, Average("loss", weight=1), Validate([1.0, 5.0]))
    assert engine.run([1.0], max_epochs=1).metrics["val/loss"] == 3.0


def test_metrics_and_supervised_are_not_told():
    model = nn.Linear(1, 1)
    batches = [(torch.ones(2, 1), torch.ones(2, 1))] * 2
    engine = supervised(model, loss_fn=nn.functional.mse_loss)
    engine.add(Metrics({"error": lambda prediction, target: (prediction - target).mean()}))
    assert set(engine.evaluate(batches).metrics) == {"loss", "error"}


def test_one_batch_is_its_own_mean_and_a_count_is_none():
    assert Engine(per_batch).evaluate([5.0]).metrics == {"loss": 5.0}

    def counting(state, batch):
        state.metrics["seen"] = torch.tensor(state.iteration)

    assert Engine(counting).evaluate("abc").metrics == {"seen": 3}


def test_a_running_mean_in_a_memory_is_not_told():
    @dataclass
    class Sums:
        loss: float = 0.0

    def running(state, batch):
        sums = state.recall(running, Sums)
        sums.loss += batch
        state.metrics["loss"] = sums.loss / state.iteration

    assert Engine(running).evaluate([1.0, 5.0]).metrics["loss"] == 3.0


def test_what_is_written_after_the_batches_is_not_told():
    engine = Engine(per_batch)

    @engine.evaluation.on(Events.COMPLETED)
    def mean(state):
        state.metrics["loss"] = 3.0

    assert engine.evaluate([1.0, 5.0]).metrics["loss"] == 3.0


class Scene:
    """Parameters in no module, as in Gaussian splatting."""

    def __init__(self):
        self.points = nn.Parameter(torch.zeros(2))
        self.optimizer = torch.optim.SGD([self.points], 0.1)

    def state_dict(self):
        return {"points": self.points.detach()}

    def load_state_dict(self, state):
        self.points.data.copy_(state["points"])


@pytest.mark.parametrize("among_lists", [False, True])
def test_an_evaluation_of_parameters_in_no_module_is_told_nothing_of_a_mode(among_lists):
    scene = Scene()
    kept = nn.ParameterList([scene.points]) if among_lists else None  # which has no mode
    update = Update(scene.optimizer)

    def step(state, batch):
        loss = (scene.points - 1).square().sum()
        if state.training:
            update(state, loss)

    objects = {"scene": scene, "optimizer": scene.optimizer}
    Engine(step, update, Validate([1]), objects=objects).run(range(4), max_epochs=1)
    del kept


def test_an_evaluation_of_a_module_that_the_engine_does_not_know_is_told_so():
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    update = Update(optimizer)

    def step(state, batch):
        if state.training:
            update(state, model(torch.ones(1, 1)).mean())

    engine = Engine(step, update, Validate([1]), objects={"optimizer": optimizer})
    with pytest.warns(UserWarning, match="this evaluation leaves their module in training mode"):
        engine.run(range(2), max_epochs=1)
