"""Snapshots: all of a run, and all or nothing of it put back."""

import logging

import pytest
import torch
from torch import nn

from camshaft import Engine, State
from camshaft.handlers.checkpoint.snapshot import put_back, take, take_part


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
    return take(engine.objects, [take_part(state)])


def test_each_module_has_a_file_of_plain_names_and_the_rest_shares_one():
    generator, critic = nn.Linear(2, 1), nn.Linear(1, 1)
    optimizer = torch.optim.SGD(generator.parameters(), 0.1, momentum=0.9)
    generator(torch.ones(2)).backward()
    optimizer.step()
    objects = {"generator": generator, "critic": critic, "optimizer": optimizer, "ema": Average()}
    snapshot = finished(objects)
    assert sorted(snapshot.tensors) == ["critic", "generator", "train"]
    assert sorted(snapshot.tensors["generator"]) == ["bias", "weight"]
    assert {"ema.value", "optimizer.state.0.momentum_buffer"} < snapshot.tensors["train"].keys()


def test_a_module_whose_name_cannot_be_a_file_is_saved_all_the_same():
    objects = {"train": nn.Linear(1, 1), "../x": nn.Linear(2, 2)}
    snapshot = finished(objects)
    assert list(snapshot.tensors) == ["train"]
    others = {"train": nn.Linear(1, 1), "../x": nn.Linear(2, 2)}
    put_back(snapshot, State(), others)
    assert all(torch.equal(others[name].weight, objects[name].weight) for name in objects)


def test_objects_are_loaded_in_place_and_the_state_goes_on():
    model = nn.Linear(2, 1)
    snapshot = finished({"model": model, "ema": Average(3.0)})
    other, ema, state = nn.Linear(2, 1), Average(), State()
    weight = other.weight
    put_back(snapshot, state, {"model": other, "ema": ema})
    assert other.weight is weight
    assert torch.equal(weight, model.weight)
    assert ema.value == 3.0
    assert (state.iteration, state.epoch) == (6, 2)


def test_what_does_not_fit_is_listed_and_nothing_is_touched():
    snapshot = finished({"model": nn.Linear(2, 1), "ema": Average(3.0)})
    model, ema, state = nn.Linear(3, 1), Average(), State()
    before = model.weight.clone()
    with pytest.raises(ValueError, match="only in the engine: 'critic'") as caught:
        put_back(snapshot, state, {"model": model, "critic": ema})
    assert "only in the checkpoint: 'ema'" in str(caught.value)
    assert "'weight' of 'model': float32[1, 2] in the checkpoint" in str(caught.value)
    assert torch.equal(model.weight, before)
    assert (ema.value, state.iteration) == (0.0, 0)


def test_an_object_that_refuses_leaves_the_model_as_it_was():
    class Stubborn(Average):
        def load_state_dict(self, saved):
            raise RuntimeError("no")

    snapshot = finished({"model": nn.Linear(2, 1), "ema": Average()})
    model = nn.Linear(2, 1)
    before = model.weight.clone()
    with pytest.raises(RuntimeError, match="no"):
        put_back(snapshot, State(), {"model": model, "ema": Stubborn()})
    assert torch.equal(model.weight, before)


def test_what_cannot_be_saved_is_named():
    state = Engine(idle).run("a", max_epochs=1)
    state.metrics["figure"] = object()
    with pytest.raises(TypeError, match=r"^run\.0\.metrics\.values\.figure is a builtins\.object"):
        take_part(state)


def test_another_number_of_ranks_is_told_of(caplog):
    state = Engine(idle).run("abc", max_epochs=1)
    snapshot = take({}, [take_part(state), take_part(state)])
    with caplog.at_level(logging.WARNING, "camshaft"):
        put_back(snapshot, State(), {})
    assert "written by 2 ranks and is loaded by 1" in caplog.text
