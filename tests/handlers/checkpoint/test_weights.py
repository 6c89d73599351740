"""Weights: plain names, with and without wrappers."""

import weakref
from typing import Any

import torch
from torch.nn import DataParallel, Linear, Sequential
from torch.optim.swa_utils import AveragedModel

from camshaft.handlers.checkpoint.weights import load_weights, weights


def compiled(module) -> Any:
    return torch.compile(module, backend="eager")


def test_a_compiled_module_has_the_names_of_the_module_inside():
    assert list(weights(compiled(Linear(2, 1)))) == ["weight", "bias"]
    inner = Sequential(compiled(Linear(2, 2)), Linear(2, 1))
    assert list(weights(inner)) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_a_module_whose_name_is_module_keeps_it():
    outer = Sequential()
    outer.add_module("module", Linear(2, 1))
    assert list(weights(outer)) == ["module.weight", "module.bias"]


def test_what_was_saved_unwrapped_is_loaded_into_a_wrapped_module_and_back():
    plain, wrapped = Linear(2, 1), DataParallel(compiled(Linear(2, 1)))
    load_weights(wrapped, weights(plain))
    assert torch.equal(wrapped.module._orig_mod.weight, plain.weight)
    other = Linear(2, 1)
    load_weights(other, weights(wrapped))
    assert torch.equal(other.weight, plain.weight)


def test_wrappers_inside_a_module_leave_no_trace_either():
    inner = Sequential(Sequential(compiled(DataParallel(Linear(2, 2)))), Linear(2, 1))
    plain = Sequential(Sequential(Linear(2, 2)), Linear(2, 1))
    assert list(weights(inner)) == list(plain.state_dict())
    load_weights(inner, weights(plain))
    assert all(torch.equal(weights(inner)[name], value) for name, value in weights(plain).items())


def test_an_average_keeps_how_much_it_has_averaged():
    average = AveragedModel(DataParallel(Linear(2, 1)))
    average.update_parameters(DataParallel(Linear(2, 1)))
    assert list(weights(average)) == ["n_averaged", "weight", "bias"]
    other = AveragedModel(compiled(Linear(2, 1)))
    load_weights(other, weights(average))
    assert other.n_averaged == 1
    assert torch.equal(weights(other)["weight"], weights(average)["weight"])


class Fleeting(dict):
    """Weights that are made when they are asked for, and counted while anybody has them."""

    def __init__(self, saved):
        super().__init__(saved)
        self.given, self.most = [], 0

    def __getitem__(self, name):
        made = super().__getitem__(name).clone()
        self.given = [given for given in self.given if given() is not None]
        self.most = max(self.most, len(self.given) + 1)
        self.given.append(weakref.ref(made))
        return made


def test_weights_are_loaded_one_by_one_and_in_place():
    saved = Fleeting(weights(Sequential(*(Linear(3, 3) for _ in range(5)))))
    module = Sequential(*(Linear(3, 3) for _ in range(5)))
    places = [weight.data_ptr() for weight in module.parameters()]
    load_weights(module, saved)
    assert saved.most <= 2  # one, and the one before it while it is replaced
    assert [weight.data_ptr() for weight in module.parameters()] == places
    assert all(torch.equal(saved[name], weight) for name, weight in weights(module).items())
