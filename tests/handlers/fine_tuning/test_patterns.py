"""Parameters chosen by their names."""

import re

import torch
from torch.nn import Parameter

from camshaft.handlers.fine_tuning.patterns import group_name, known, matches, norms_and_biases

MATRIX = Parameter(torch.zeros(2, 2))


def test_a_glob_a_regular_expression_and_a_function_mean_whole_names():
    assert matches("layers.[01].*", "layers.1.weight", MATRIX)
    assert not matches("layers", "layers.1.weight", MATRIX)
    assert matches(re.compile(r".*\.weight"), "layers.1.weight", MATRIX)
    assert not matches(re.compile("layers"), "layers.1.weight", MATRIX)
    assert matches(lambda name, parameter: parameter.ndim == 2, "anything", MATRIX)
    assert not norms_and_biases("embedding.weight", MATRIX)
    assert norms_and_biases("norm.weight", Parameter(torch.zeros(2)))


def test_groups_are_called_by_what_they_are():
    names = [
        group_name(each) for each in ("backbone.*", "*", ".*", re.compile("a+"), norms_and_biases)
    ]
    assert names == ["backbone", "*", ".*", "a+", "norms_and_biases"]


def test_a_long_list_of_names_is_cut():
    assert known("abc") == "'a', 'b', 'c'"
    assert known("abcdefghij").endswith("'h', ...")
