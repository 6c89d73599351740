"""The exponential moving average, and stochastic weight averaging."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, update_bn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, Stage, supervised
from camshaft.handlers import EMA, SWA, Checkpoint, LRSchedule, Validate, checkpoints


def averaged(values, **arguments):
    """The averages of a weight and a buffer that take these values, one a step."""
    model, found = nn.BatchNorm1d(1), []

    def process(state, value):
        model.weight.data.fill_(value)
        model.running_mean.fill_(value)
        state.fire(Events.STEP_COMPLETED)
        ema = engine.objects["ema"]
        found.append((ema.weight.item(), ema.running_mean.item()))

    engine = Engine(process, EMA(**arguments), objects={"model": model})
    engine.run(values, max_epochs=1)
    return found


def test_of_3_and_5_with_a_decay_of_a_half_it_is_4():
    assert averaged([3.0, 5.0], decay=0.5, warmup=False) == [(3, 3), (4, 4)]
    assert averaged([3.0, 5.0], decay=0.5, warmup=False, buffers=False) == [(3, 3), (4, 5)]


def test_the_warm_up_forgets_the_first_weights_soon():
    expected = average = torch.tensor(0.0)
    values = [0.0, *range(1, 30)]
    for count, value in enumerate(values[1:], 1):
        decay = min(0.7, (1 + count) / (10 + count))
        average = torch.lerp(average, torch.tensor(float(value)), 1 - decay)
    expected = average.item()
    assert averaged(map(float, values), decay=0.7)[-1] == (expected, expected)
    assert EMA(0.7).decay_after(19) < 0.7 == EMA(0.7).decay_after(20)


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_what_is_no_decay_is_refused(decay):
    with pytest.raises(ValueError, match=r"EMA\(decay=.*from 0 to less than 1"):
        EMA(decay)


def build(*handlers):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.randn(12, 2), torch.randn(12, 1))
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    return engine.add(*handlers), DataLoader(data, 4, shuffle=True), optimizer


def test_it_is_the_mean_of_the_weights_after_each_epoch_from_the_start_on():
    engine, loader, _ = build(SWA(when=Events.EPOCH_COMPLETED(after=2)))
    seen, swa = [], engine.objects["swa"]
    began = engine.objects["model"][0].weight.detach().clone()

    @engine.on(Events.EPOCH_COMPLETED)
    def look(state):
        seen.append(engine.objects["model"][0].weight.detach().clone())
        if state.epoch == 2:
            assert torch.equal(swa[0].weight, began)

    engine.run(loader, max_epochs=5)
    mean = torch.stack(seen[2:]).double().mean(0)
    assert torch.allclose(swa[0].weight.double(), mean, atol=1e-7)


@pytest.mark.skipif(
    not hasattr(SWALR, "_set_anneal_func"),
    reason="SWALR of this torch has a function in its state, which no checkpoint holds",
)
def test_its_rate_is_an_ordinary_schedule_and_its_statistics_are_measured_at_the_end(tmp_path):
    engine, loader, optimizer = build(SWA(when=Events.EPOCH_COMPLETED(after=1)))
    schedule = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
    engine.add(LRSchedule(schedule, when=Events.EPOCH_COMPLETED(after=1)))

    @engine.on(Events.COMPLETED, stage=Stage.MEASURE)
    def measure(state):
        update_bn(loader, engine.objects["swa"])

    engine.add(
        Validate(loader, name="swa", weights="swa", when=Events.COMPLETED),
        Checkpoint(tmp_path, when=Events.COMPLETED),
    )
    engine.run(loader, max_epochs=4)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    swa, inputs = engine.objects["swa"], loader.dataset.tensors[0]
    batches = swa[0](inputs)
    assert torch.allclose(swa[1].running_mean, batches.mean(0), atol=1e-6)
    saved = checkpoints(tmp_path)[-1].state_dict("swa")
    assert torch.equal(saved["1.running_mean"], swa[1].running_mean)


def test_a_decay_that_looks_like_a_momentum_is_told_of():
    with pytest.warns(UserWarning, match=r"is EMA\(0\.9998\)"):
        EMA(0.0002)
