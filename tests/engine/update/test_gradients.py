"""Gradients as a whole: their norm, and whether they are numbers."""

import pytest
import torch

from camshaft.engine.update import gradients_of, non_finite, norm_of, parameters_of


def make():
    used, unused = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))
    used.grad = torch.tensor([3.0, -4.0])
    return torch.optim.SGD([{"params": [used]}, {"params": [unused], "lr": 1.0}], lr=0.1)


def test_gradients_are_those_there_are_and_parameters_are_all():
    optimizer = make()
    assert len(parameters_of(optimizer)) == 2
    assert [each.tolist() for each in gradients_of(optimizer)] == [[3.0, -4.0]]


@pytest.mark.parametrize(("kind", "expected"), [(2.0, 5.0), (1.0, 7.0), (float("inf"), 4.0)])
def test_the_norm_is_that_of_torch(kind, expected):
    optimizer = make()
    assert norm_of(gradients_of(optimizer), kind).item() == expected
    clipped = torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), 1e9, kind)
    assert norm_of(gradients_of(optimizer), kind).item() == clipped.item()
    assert norm_of([]).item() == 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_element_breaks_them_all(bad):
    assert non_finite([torch.zeros(3), torch.tensor([0.0, bad])]).item() == 1.0


def test_large_gradients_whose_squares_overflow_are_numbers_all_the_same():
    large = [torch.full((4,), 1e30)]
    assert not norm_of(large).isfinite()
    assert non_finite(large).item() == 0.0


def test_sparse_gradients_are_looked_at_too():
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    assert non_finite([embedding.weight.grad]).item() == 0.0
    (embedding(torch.tensor([1])) * float("nan")).sum().backward()
    assert non_finite([embedding.weight.grad]).item() == 1.0
