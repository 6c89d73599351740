"""Groups of parameters by patterns of names."""

import re

import pytest
import torch
from torch import nn

from camshaft import supervised
from camshaft.handlers import (
    LRSchedule,
    describe_groups,
    norms_and_biases,
    parameter_groups,
)
from camshaft.handlers.schedules import linear


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        self.head = nn.Linear(3, 1)

    def forward(self, input):
        return self.head(self.backbone(input))


def names_in(model, groups):
    by_id = {id(each): name for name, each in model.named_parameters()}
    return {group["name"]: [by_id[id(each)] for each in group["params"]] for group in groups}


def test_the_first_pattern_that_matches_takes_a_parameter_and_the_rest_are_the_default():
    model = Net()
    patterns = {
        "*.bias": {"weight_decay": 0.0, "name": "biases"},
        re.compile(r"backbone\..*"): {"lr": 0.01},
    }
    groups = parameter_groups(model, patterns)
    assert names_in(model, groups) == {
        "biases": ["backbone.0.bias", "backbone.1.bias", "head.bias"],
        r"backbone\..*": ["backbone.0.weight", "backbone.1.weight"],
        "default": ["head.weight"],
    }
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01, 0.1]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.0, 0.01, 0.01]


def test_norms_and_biases_without_weight_decay_are_one_line():
    model = Net()
    groups = parameter_groups(model, {norms_and_biases: {"weight_decay": 0.0}})
    assert names_in(model, groups)["default"] == ["backbone.0.weight", "head.weight"]


def test_frozen_parameters_are_left_out_unless_they_are_to_be_thawed():
    model = Net()
    model.backbone.requires_grad_(False)
    assert names_in(model, parameter_groups(model, {})) == {"default": ["head.weight", "head.bias"]}
    assert len(parameter_groups(model, {"head.*": {}}, frozen=True)[1]["params"]) == 4


def test_shared_parameters_are_in_one_group():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    groups = parameter_groups(model, {"0.*": {"lr": 1.0}})
    assert [len(group["params"]) for group in groups] == [2, 1]
    torch.optim.SGD(groups, 0.1)


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"backbon.*": {}}, "'backbon' matches no parameter; there are 'backbone.0.weight'"),
        ({"*": {}, "head.*": {}}, "all .* 'head' matches are taken by patterns before it"),
        ({"frozen.*": {}}, "all .* 'frozen' matches are frozen; .* frozen=True"),
        ({"head.*": {"name": "default"}}, "two groups have one name"),
    ],
)
def test_a_group_that_would_be_empty_is_an_error_that_says_why(patterns, message):
    model = Net()
    model.frozen = nn.Linear(1, 1).requires_grad_(False)
    with pytest.raises(ValueError, match=message):
        parameter_groups(model, patterns)


def test_what_is_no_dict_is_refused():
    with pytest.raises(TypeError, match="pattern -> options"):
        parameter_groups(Net(), ["head.*"])


def test_the_table_shows_sizes_what_trains_and_options():
    model = Net()
    groups = parameter_groups(model, {"head.*": {"lr": 0.5}})
    model.backbone[0].requires_grad_(False)
    table = describe_groups(torch.optim.SGD(groups, 0.1, momentum=0.9)).splitlines()
    assert table[1].startswith("head           2         4          4  lr=0.5, momentum=0.9")
    assert table[2].startswith("default        4        15          6  lr=0.1")
    assert table[3] == "total          6        19         10"


def test_rates_are_logged_by_the_names_of_the_groups():
    model = Net()
    optimizer = torch.optim.SGD(parameter_groups(model, {"backbone.*": {"lr": 0.01}}), 0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(LRSchedule(linear()))
    state = engine.run([(torch.ones(2, 2), torch.ones(2, 1))] * 2, max_epochs=1)
    assert state.metrics["lr/backbone"] == 0.005
    assert state.metrics["lr/default"] == 0.05
