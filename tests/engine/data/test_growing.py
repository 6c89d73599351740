"""Batches that grow and shares that move during a run, killed in mid-epoch."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, Subset, TensorDataset

from camshaft import Events, Mixture, Update, loader, supervised
from camshaft.handlers import Checkpoint, JSONLines, LRSchedule
from camshaft.handlers.schedules import cosine, warmup

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "growing.md"
DATA = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))


def classes_of_the_guide():
    """The samplers, as they stand there."""
    found = {"Sampler": Sampler, "torch": torch, "math": math}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        for text in re.findall(r"^class .*?\n(?=\S|\Z)", block, re.M | re.S):
            exec(text, found)
    return found


def growing_batch(engine):
    sampler = classes_of_the_guide()["Growing"](len(DATA), [4, 8, 13])
    return DataLoader(DATA, batch_sampler=sampler)


def growing_window(engine):
    (update,) = (each for each in engine.handlers.values() if isinstance(each, Update))

    @engine.on(Events.EPOCH_STARTED)
    def grow(state):
        update.accumulate = 2 ** (state.epoch - 1)

    return loader(DATA, 4, training=True)


def mixtures():
    parts = {"a": Subset(DATA, range(25)), "b": Subset(DATA, range(25, 40))}
    return [
        Mixture(parts, weights={"a": a, "b": 1 - a}, samples=30, ended="repeat", seed=3)
        for a in (0.9, 0.5, 0.1)
    ]


def staged(engine):
    sampler = classes_of_the_guide()["Stages"](mixtures())
    return DataLoader(sampler.mixtures[0].data, 4, sampler=sampler)


def by_loss(engine):
    sampler = engine.objects["mixtures"] = classes_of_the_guide()["ByLoss"](mixtures())

    @engine.on(Events.EPOCH_COMPLETED)
    def choose(state):
        sampler.stage += state.metrics["loss"].item() < 5

    return DataLoader(sampler.mixtures[0].data, 4, sampler=sampler)


def train(directory, make, end=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    update = Update(torch.optim.AdamW(model.parameters(), 1e-2))
    engine = supervised(model, update, nn.functional.mse_loss)
    data = make(engine)

    @engine.on(Events.ITERATION_COMPLETED)
    def kill(state):
        if state.iteration == end:
            raise KeyboardInterrupt

    engine.add(
        LRSchedule(warmup(2).then(cosine(final=0.1))),
        JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED),
        Checkpoint(directory, resume=True, when=Events.ITERATION_COMPLETED(every=3)),
    )
    engine.run(data, max_epochs=3)
    rows = map(json.loads, (directory / "rows.jsonl").read_text().splitlines())
    return model.state_dict(), [(row["loss"], row["lr"], row["step"]) for row in rows]


@pytest.mark.parametrize("make", [growing_batch, growing_window, staged, by_loss])
def test_a_run_that_grows_is_the_same_run_after_kills_in_mid_epoch(make, tmp_path, caplog):
    whole, rows = train(tmp_path / "whole", make)
    assert "other batches" not in caplog.text
    for end in (5, 11, 17):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "parts", make, end)
    parts, same = train(tmp_path / "parts", make)
    assert rows == same
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    if make is growing_window:  # 10, 5 and 3 steps, and the schedule ends with the last one
        assert rows[-1][2] == 18
        assert 1e-3 < rows[-1][1] < 1.4e-3
