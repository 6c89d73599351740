"""Snapshots: all of a run."""

import logging

import pytest
import torch
from torch import nn

from camshaft import Engine
from camshaft.handlers.checkpoint.directory import Directory
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.load import SavedRun
from camshaft.handlers.checkpoint.load.read import in_memory
from camshaft.handlers.checkpoint.save.snapshot import take_part, take_run
from camshaft.handlers.checkpoint.sharding import Layout


class Average:
    """An object of a user's own."""

    def __init__(self, value=0.0):
        self.value = torch.tensor(value)

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, saved):
        if "value" not in saved:
            raise KeyError("value")
        self.value = saved["value"]


def idle(state, batch):
    return None


def finished(objects):
    engine = Engine(idle, objects=objects)
    state = engine.run("abc", max_epochs=2)
    return take_run(engine.objects, take_part(state), Layout(), {}, {})


def loaded(directory, snapshot):
    saved = Directory(directory).write(snapshot.streamed(), Manifest())
    return SavedRun.at(saved, {})


def test_each_module_has_a_file_of_plain_names_and_the_rest_shares_one():
    generator, critic = nn.Linear(2, 1), nn.Linear(1, 1).requires_grad_(False)
    optimizer = torch.optim.SGD(generator.parameters(), 0.1, momentum=0.9)
    generator(torch.ones(2)).backward()
    optimizer.step()
    objects = {"generator": generator, "critic": critic, "optimizer": optimizer, "ema": Average()}
    snapshot = finished(objects)
    assert sorted(snapshot.tensors) == ["critic", "generator", "train"]
    assert sorted(snapshot.tensors["generator"]) == ["bias", "weight"]
    assert {"ema.value", "optimizer.state.0.momentum_buffer"} < snapshot.tensors["train"].keys()


def test_another_number_of_ranks_is_told_of(tmp_path, caplog):
    state = Engine(idle).run("abc", max_epochs=1)
    snapshot = take_run({}, take_part(state), Layout(), {}, {})
    saved = Directory(tmp_path).write(snapshot.streamed(), Manifest(world_size=2))
    with caplog.at_level(logging.WARNING, "camshaft"):
        assert SavedRun.at(saved, {}).is_own
    assert "written by 2 ranks and is loaded by 1" in caplog.text


@pytest.mark.filterwarnings("ignore:objects.'other'. updates parameters of no module")
def test_the_entry_of_an_optimizer_names_its_parameters_beside_their_indices():
    """An export without the script needs them: indices alone tell no parameter."""
    model, critic = nn.Linear(2, 1), nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    critic[1].weight = critic[0].weight
    for each in critic:
        each.bias.requires_grad_(False)
    groups = [{"params": [critic[0].weight, model.bias]}, {"params": [model.weight]}]
    unnamed = nn.Parameter(torch.zeros(1))
    objects = {
        "model": nn.DataParallel(model),
        "critic": critic,
        "optimizer": torch.optim.SGD(groups),
        "other": torch.optim.SGD([unnamed]),
    }
    entries = finished(objects).trees["state.json"]["objects"]
    assert entries["optimizer"]["parameters"] == {
        "model": {"weight": 2, "bias": 1},
        "critic": {"0.weight": 0, "1.weight": 0},
    }
    assert entries["optimizer"]["content"]["param_groups"][1]["params"] == [2]
    assert entries["other"]["parameters"] == {}
    assert "parameters" not in entries["model"]


@pytest.mark.parametrize("name", ["!dict", "__metadata__", "\ud800"])
def test_a_weight_may_have_any_name(tmp_path, name):
    module = nn.Module()
    module.register_buffer(name, torch.arange(3.0))
    saved = Directory(tmp_path).write(finished({"model": module}).streamed(), Manifest())
    (found,) = SavedRun.at(saved, {}).objects["model"].items()
    assert found[0] == name
    assert in_memory(dict([found]))[name].tolist() == [0, 1, 2]
