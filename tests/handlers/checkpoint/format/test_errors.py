"""Broken checkpoints: whatever is met while one is read becomes one kind of error."""

import pickle
from pathlib import Path

import pytest

from camshaft.handlers.checkpoint.format import BrokenCheckpoint, reading

PATH = Path("runs/iteration-0000000001")


def met(error, path=PATH):
    with pytest.raises(BrokenCheckpoint) as caught, reading(path, "state.json"):
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (FileNotFoundError(2, "No such file"), "state.json cannot be read: No such file"),
        (ValueError("has 1 bytes"), "state.json has 1 bytes"),
        (KeyError("x"), "state.json has invalid content (KeyError: 'x')"),
        (MemoryError(), "state.json has invalid content (MemoryError: )"),
    ],
    ids=repr,
)
def test_the_message_names_the_checkpoint_the_file_and_what_is_wrong(error, says):
    assert str(met(error)) == f"the checkpoint {PATH} is broken: {says}"


def test_an_interruption_is_no_damage():
    with pytest.raises(KeyboardInterrupt), reading(PATH):
        raise KeyboardInterrupt


def test_it_travels_between_processes():
    back = pickle.loads(pickle.dumps(BrokenCheckpoint("why", PATH)))
    assert (back.reason, back.path) == ("why", PATH)
