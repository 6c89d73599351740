"""Memories of handlers as plain values."""

from dataclasses import dataclass, field

import pytest
import torch

from camshaft.engine.memory import restore, snapshot


@dataclass
class Best:
    value: float | None = None
    seen: list[int] = field(default_factory=list)


@dataclass
class Nested:
    average: torch.nn.Module
    steps: int = 0


def test_dataclasses_and_dicts_go_there_and_back():
    memory = Best(0.5, [1, 2])
    again = Best()
    restore(again, snapshot(memory))
    assert again == memory
    table = {"a": 1}
    restore(table, snapshot({"a": 2, "b": 3}))
    assert table == {"a": 2, "b": 3}


def test_what_has_a_state_dict_is_loaded_in_place():
    memory = Nested(torch.nn.Linear(1, 1), 3)
    other = Nested(torch.nn.Linear(1, 1))
    average = other.average
    restore(other, snapshot(memory))
    assert other.average is average
    assert torch.equal(average.weight, memory.average.weight)
    assert other.steps == 3


def test_what_cannot_be_saved_is_an_error_that_says_what_can():
    with pytest.raises(TypeError, match="needs to be a dataclass, a dict, or have state_dict"):
        snapshot([1, 2])
