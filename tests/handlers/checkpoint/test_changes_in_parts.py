"""Changes inside of what a script holds: files, functions, parameters, loaders, shared tensors."""

import multiprocessing
import warnings
from enum import Enum
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint

SETTINGS = ModuleType("settings_of_a_script")
SETTINGS.__file__ = __file__
X = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))


class Phase(Enum):
    WARM, MAIN = 1, 2


class Phased:
    phase = Phase.WARM


class Remembers(nn.Linear):
    def __init__(self):
        super().__init__(3, 1)
        self.kept = []

    def forward(self, x):
        return super().forward(x) * (1 + sum(self.kept))

    def keep(self, value):
        self.kept.append(value)
        self.kept = self.kept[-2:]


class Chosen:
    """One of several loaders."""

    def __init__(self, *loaders):
        self.loaders, self.now = loaders, loaders[0]

    def __len__(self):
        return len(self.now)

    def __iter__(self):
        return iter(self.now)


CHANGES = {
    "a member of an enum, behind that of its class": lambda s: setattr(s.own, "phase", Phase.MAIN),
    "an attribute that a function gets": lambda s: setattr(s.scale, "gain", 2.0),
    "an attribute of a parameter": lambda s: setattr(s.weight, "gain", s.weight.gain * 0.9),
    "the numbers of a file": lambda s: s.gains.__imul__(0.9),
    "labels that a data set has, too": lambda s: s.labels.mul_(0.9),
    "a tensor of two names": lambda s: s.factor.mul_(0.9),
    "one of two names, another": lambda s: setattr(s.own, "factor", s.own.factor * 0.9),
    "another loader": lambda s: setattr(s.data, "now", s.data.loaders[-1]),
    "the size of batches": lambda s: setattr(s.loader.batch_sampler, "batch_size", 7),
    "whether a short batch comes": lambda s: setattr(s.loader.batch_sampler, "drop_last", True),
    "a list that is cut": lambda s: s.model.keep(0.2),
    "a variable of a module": lambda s: setattr(SETTINGS, "gain", SETTINGS.gain * 0.9),
    "a number of several processes": lambda s: setattr(s.shared, "value", 1 + s.shared.value),
    "a tensor of one number": lambda s: setattr(s, "wide", s.wide * 0.9),
    "containers in others, another": lambda s: setattr(
        s, "deep", {"a": [{"b": s.deep_gain() * 2}]}
    ),
}


def script(what, directory, until=None):
    """One start of a script that makes a change after each epoch; its weights and batches."""
    torch.manual_seed(0)
    model, rows = Remembers(), TensorDataset(X.clone(), X[:, :1].clone())
    s = SimpleNamespace(own=Phased(), weight=model.weight, labels=rows.tensors[1], model=model)
    s.loader, s.wide = DataLoader(rows, 5, shuffle=True), torch.ones(1).expand(3)
    s.data = Chosen(s.loader, DataLoader(rows, 4, shuffle=True))
    s.weight.gain, s.gains = 1.0, np.memmap(f"{directory}.npy", "float32", "w+", shape=2)
    s.gains[:] = SETTINGS.gain = 1
    s.factor = s.own.factor = torch.ones(1)
    s.deep, s.deep_gain = {"a": [{"b": torch.ones(1)}]}, lambda: s.deep["a"][0]["b"]
    s.shared = multiprocessing.Value("d", 1.0)
    s.scale = scale = lambda value: value * getattr(scale, "gain", 1.0)
    optimizer, batches = torch.optim.SGD(model.parameters(), 0.1), []

    def step(state, batch):
        batches.append([each.tolist() for each in batch])
        loss = s.scale(model(batch[0] * s.wide) - batch[1]).square().mean() * float(s.gains[0])
        loss = loss * s.factor.item() * s.own.factor.item() * s.deep_gain()
        (loss * s.weight.gain * s.own.phase.value * SETTINGS.gain * s.shared.value).backward()
        optimizer.step()
        optimizer.zero_grad()

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})
    engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED, resume=True))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: (CHANGES[what](s), Phase.MAIN))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = s.data if what == "another loader" else s.loader
        engine.run(data, max_epochs=3, max_iterations=until)
    return batches, model.weight.tolist()


@pytest.mark.quick(what=4)
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_in_a_part_of_what_a_script_holds_goes_on_in_mid_epoch(what, tmp_path):
    batches, weights = script(what, tmp_path / "whole")
    script(what, tmp_path / "parts", until=7)
    script(what, tmp_path / "parts", until=12)
    assert script(what, tmp_path / "parts") == (batches[12:], weights)
