"""Stochastic weight averaging."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, update_bn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, Stage, supervised
from camshaft.handlers import SWA, Checkpoint, LRSchedule, Validate, checkpoints


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


def test_its_rate_is_an_ordinary_schedule_and_its_statistics_are_measured_at_the_end(tmp_path):
    engine, loader, optimizer = build(SWA(when=Events.EPOCH_COMPLETED(after=1)))
    schedule = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
    engine.add(LRSchedule(schedule, when=Events.EPOCH_COMPLETED(after=1)))

    @engine.on(Events.COMPLETED, stage=Stage.MEASURE)
    def measure(state):
        update_bn(loader, engine.objects["swa"])

    engine.add(
        Validate(loader, "swa", weights="swa", when=Events.COMPLETED),
        Checkpoint(tmp_path, when=Events.COMPLETED),
    )
    engine.run(loader, max_epochs=4)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    swa, inputs = engine.objects["swa"], loader.dataset.tensors[0]
    batches = swa[0](inputs)
    assert torch.allclose(swa[1].running_mean, batches.mean(0), atol=1e-6)
    saved = checkpoints(tmp_path)[-1].state_dict("swa")
    assert torch.equal(saved["1.running_mean"], swa[1].running_mean)
