"""Hyper-parameters as trackers take them."""

import math

import torch

from camshaft.handlers.loggers.hparams import flat


def test_nested_names_are_joined():
    assert flat({"a": {"b": {"c": 1}}, "d": 2}) == {"a/b/c": 1, "d": 2}


def test_numbers_truths_and_texts_stay_what_they_are():
    given = {"bool": True, "int": 1, "float": math.inf, "str": "x"}
    assert {name: type(value) for name, value in flat(given).items()} == {
        "bool": bool,
        "int": int,
        "float": float,
        "str": str,
    }


def test_all_else_becomes_text():
    assert flat({"a": None, "b": [1, 2], "c": torch.float32}) == {
        "a": "None",
        "b": "[1, 2]",
        "c": "torch.float32",
    }
