"""Weights: plain names, with and without wrappers."""

from typing import Any

import torch
from torch.nn import DataParallel, Linear, Sequential

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
