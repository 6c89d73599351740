"""Memories of handlers as plain values."""

from dataclasses import dataclass, field

import pytest
import torch

from camshaft import State
from camshaft.engine.state.handler_memory import dump_memory, load_memory


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
    load_memory(again, dump_memory(memory))
    assert again == memory
    table = {"a": 1}
    load_memory(table, dump_memory({"a": 2, "b": 3}))
    assert table == {"a": 2, "b": 3}


def test_what_has_a_state_dict_is_loaded_in_place():
    memory = Nested(torch.nn.Linear(1, 1), 3)
    other = Nested(torch.nn.Linear(1, 1))
    average = other.average
    load_memory(other, dump_memory(memory))
    assert other.average is average
    assert torch.equal(average.weight, memory.average.weight)
    assert other.steps == 3


def test_a_dict_may_gain_and_lose_names_and_a_dataclass_may_not():
    with pytest.raises(
        ValueError,
        match=r"fields only in the checkpoint: 'when'; fields only in Best: 'seen'$",
    ):
        load_memory(Best(), {"value": 0.1, "when": 3})
    with pytest.raises(ValueError, match="only in the checkpoint: none; fields only in Best: 's"):
        load_memory(Best(), {"value": 0.1})
    with pytest.raises(ValueError, match="it was saved as a list, not by fields"):
        load_memory(Best(), [1])


def test_a_memory_that_does_not_fit_is_as_it_was():
    best = Best()
    with pytest.raises(ValueError, match="only in Best"):
        load_memory(best, {"value": 0.1})
    assert best == Best()


@pytest.mark.parametrize("kind", ["a field", "an entry", "all"])
def test_a_memory_that_holds_the_state_is_refused(kind):
    state = State()
    memory = {"a field": Best(state), "an entry": {"run": state}, "all": state}[kind]
    with pytest.raises(TypeError, match="it holds the State of a run, which holds all memories"):
        dump_memory(memory)


def test_what_cannot_be_saved_is_an_error_that_says_what_can():
    with pytest.raises(TypeError, match="needs to be a dataclass, a dict, or have state_dict"):
        dump_memory([1, 2])
