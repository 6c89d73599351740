"""Optimizers that evaluate the loss several times a step."""

import pytest
import torch

from camshaft import Update
from camshaft.engine.update.closures import Evaluation, checked, needs_closure


def weight_of(value=1.0):
    return torch.nn.Parameter(torch.tensor(value))


@pytest.mark.parametrize(
    ("kind", "needs"),
    [(torch.optim.SGD, False), (torch.optim.AdamW, False), (torch.optim.LBFGS, True)],
)
def test_who_needs_a_closure_says_so_by_its_signature(kind, needs):
    optimizer = kind([weight_of()])
    assert needs_closure(optimizer) is needs
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # which wraps step()
    assert needs_closure(optimizer) is needs


def test_a_missing_closure_is_an_error_that_names_the_optimizer():
    optimizer = torch.optim.LBFGS([weight_of()])
    with pytest.raises(TypeError, match="LBFGS evaluates the loss several times a step"):
        checked(None, optimizer)
    assert checked(weight_of, optimizer) is weight_of


def test_the_first_evaluation_is_the_one_that_there_was():
    weight = weight_of()
    weight.grad = torch.tensor(7.0)
    update = Update(torch.optim.LBFGS([weight]), accumulate=2)
    closures = [lambda: 3 * weight, lambda: 5 * weight]
    evaluation = Evaluation(update, closures, torch.tensor(20.0), 0.5)
    assert (evaluation().item(), weight.grad.item()) == (10.0, 7.0)
    with torch.no_grad():
        weight.fill_(2.0)
    assert (evaluation().item(), weight.grad.item()) == (8.0, 4.0)
