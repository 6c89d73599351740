"""Resuming optimizers: their states go back to the parameters of which they were saved."""

import pytest
import torch
from torch.nn.functional import mse_loss

from camshaft import supervised
from camshaft.handlers import Checkpoint, checkpoints

BATCH = torch.ones(2, 3), torch.zeros(2, 3)


def run(directory, make, **options):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    engine = supervised(model, make(model), mse_loss)
    engine.add(Checkpoint(directory, resume=True, **options))
    return engine.run([BATCH], max_epochs=len(checkpoints(directory)) + 1)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def in_order(model):
    return sgd(model.parameters())


def turned_round(model):
    return sgd([*model[1].parameters(), *model[0].parameters()])


def of_two(model):
    return [sgd(model[0].parameters()), sgd(model[1].parameters())]


def swapped(model):
    return of_two(model)[::-1]


def test_parameters_in_another_order_are_refused_and_the_error_names_them(tmp_path):
    run(tmp_path, in_order)
    with pytest.raises(ValueError, match=r"parameter 0 of 'optimizer' is '0.weight' of 'model' in"):
        run(tmp_path, turned_round)
    assert run(tmp_path, in_order).epoch == 2


def test_two_optimizers_that_are_swapped_are_refused(tmp_path):
    run(tmp_path, of_two)
    with pytest.raises(ValueError, match=r"parameter 0 of 'optimizer.[01]' is"):
        run(tmp_path, swapped)
    assert run(tmp_path, of_two).epoch == 2


def test_an_optimizer_that_begins_anew_may_have_its_parameters_in_another_order(tmp_path):
    run(tmp_path, in_order)
    assert run(tmp_path, turned_round, reset=["optimizer"]).epoch == 2


def test_tied_weights_are_known_by_any_of_their_names(tmp_path):
    def tied(model):
        model[1].weight = model[0].weight
        return sgd(model.parameters())

    run(tmp_path, tied)
    assert run(tmp_path, tied).epoch == 2
