"""A table of a model's parts."""

import torch
from torch import nn

from camshaft.handlers import describe_model


def test_shapes_are_those_of_a_call_that_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    text = describe_model(model, torch.zeros(5, 3))
    assert text.count("(5, 4)") == 4
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(part.training and not part._forward_hooks for part in model.modules())


def test_frozen_and_shared_parameters_and_depth():
    model = nn.Module()
    model.body = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Sequential(nn.Linear(4, 4)))
    model.head = nn.Linear(4, 4, bias=False)
    model.head.weight = model.body[0].weight
    model.body[1].requires_grad_(False)
    lines = describe_model(model, depth=1).splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["model", "Module", "36", "16"],
        ["body", "Sequential", "36", "16"],
        ["head", "Linear", "16", "16"],
    ]
    assert lines[4] == "36 parameters, 144 B; 16 of them train"


def test_outputs_that_are_no_tensors_show_the_shapes_inside():
    lstm = nn.LSTM(3, 4, batch_first=True)
    assert "((2, 5, 4), ((1, 2, 4), (1, 2, 4)))" in describe_model(lstm, torch.zeros(2, 5, 3))


def test_a_batch_of_named_inputs_is_given_by_name():
    inputs = {"input1": torch.zeros(2, 3, 4), "input2": torch.zeros(2, 3, 5)}
    assert "(2, 3, 1)" in describe_model(nn.Bilinear(4, 5, 1), inputs)
