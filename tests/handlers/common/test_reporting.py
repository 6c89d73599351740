"""Metrics as numbers."""

import math

import numpy
import pytest
import torch

from camshaft.handlers.common import scalars


def test_python_numpy_and_tensor_numbers_become_floats_in_the_order_of_the_metrics():
    metrics = {
        "tensor": torch.tensor(0.5, requires_grad=True),
        "python": 3,
        "numpy": numpy.float32(0.25),
        "half": torch.tensor(2.0, dtype=torch.bfloat16),
        "count": torch.tensor(2**40),
    }
    numbers = scalars(metrics)
    assert list(numbers.items()) == [
        *(("tensor", 0.5), ("python", 3.0), ("numpy", 0.25), ("half", 2.0), ("count", 2.0**40))
    ]
    assert all(type(value) is float for value in numbers.values())


@pytest.mark.parametrize(
    "value", [torch.ones(1), torch.eye(2), torch.tensor(1j), "text", None, [1.0], 1j]
)
def test_what_is_not_one_number_is_left_out(value):
    assert scalars({"other": value, "loss": 1.0}) == {"loss": 1.0}


def test_an_integer_that_no_float_can_hold_is_infinite():
    assert scalars({"huge": 10**400, "tiny": -(10**400)}) == {"huge": math.inf, "tiny": -math.inf}


def test_nan_and_infinity_stay_what_they_are():
    numbers = scalars({"nan": torch.tensor(math.nan), "infinity": -math.inf})
    assert math.isnan(numbers["nan"])
    assert numbers["infinity"] == -math.inf


def test_a_value_of_each_dtype_is_the_one_that_item_gives():
    for dtype in (torch.float16, torch.float32, torch.float64):
        value = torch.tensor(0.1, dtype=dtype)
        assert scalars({"value": value}) == {"value": value.item()}
