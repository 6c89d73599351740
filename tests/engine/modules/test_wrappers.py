"""What is inside wrappers, and what its weights are called."""

from typing import Any

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn import DataParallel, Linear, Sequential
from torch.optim.swa_utils import AveragedModel

from camshaft import unwrap
from camshaft.engine.modules import plain_names, uncompiled


def compiled(module) -> Any:
    return torch.compile(module, backend="eager")


class Owner(torch.nn.Module):
    """Its own parts are called as wrappers call theirs."""

    def __init__(self, inner):
        super().__init__()
        self.module = inner


WRAPPERS = [DataParallel, compiled, AveragedModel, checkpoint_wrapper]


PAIRS = [
    pytest.param(outer, inner, id=f"{outer.__name__} of {inner.__name__}")
    for outer in WRAPPERS
    for inner in WRAPPERS
    if (outer, inner) != (compiled, compiled)  # torch makes a function of it
]


@pytest.mark.parametrize(("outer", "wrap"), PAIRS)
def test_unwrap_finds_the_module_inside_any_two_wrappers(outer, wrap):
    inner = Linear(2, 1)
    found = unwrap(outer(wrap(inner)))
    assert type(found) is Linear
    assert (found is inner) == (AveragedModel not in (outer, wrap))  # which holds a copy


def test_a_module_that_has_one_called_module_is_no_wrapper():
    owner = Owner(Linear(1, 1))
    assert unwrap(owner) is owner
    assert unwrap(DataParallel(owner)) is owner


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize(
    ("outer", "prefix"),
    [*((each, "") for each in WRAPPERS), (Owner, "module."), (Sequential, "0.")],
)
def test_names_are_plain_at_any_depth(outer, prefix, wrap):
    module = outer(Owner(wrap(Linear(2, 1))))
    found = plain_names(module, module.state_dict()).values()
    weights = {name for name in found if not name.endswith("n_averaged")}
    assert weights == {f"{prefix}module.weight", f"{prefix}module.bias"}


def test_only_the_wrapper_of_torch_compile_is_taken_off():
    model = torch.nn.Linear(1, 1)
    parallel = torch.nn.DataParallel(model)
    assert uncompiled(torch.compile(parallel, backend="eager")) is parallel
    assert uncompiled(parallel) is parallel
    assert uncompiled(model) is model
