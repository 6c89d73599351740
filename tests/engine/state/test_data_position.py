"""Where in the data a run is, as plain values."""

import json

import torch

from camshaft.engine.state import Position, capture_generators, restore_generators


def test_a_position_goes_there_and_back_and_draws_the_same():
    position = Position(
        3, 40, capture_generators(), 5, left=capture_generators(), sizes={"batches": 9}, told=[1]
    )
    expected = torch.rand(2)
    again = Position.of(position.state_dict())
    restore_generators(again.rng)
    assert torch.equal(torch.rand(2), expected)
    assert (again.number, again.began, again.seed) == (3, 40, 5)
    assert (again.sizes, again.told) == ({"batches": 9}, [1])
    assert again.left is not None


def test_a_position_without_a_place_that_was_left_has_none_afterwards():
    assert Position.of(Position(1, 0, capture_generators(), 5).state_dict()).left is None


def test_an_iterator_is_saved_as_how_far_it_was_read():
    saved = Position(1, 5, capture_generators(), 5, source=iter("abc")).state_dict()
    assert set(saved) == {"number", "began", "rng", "seed", "left", "sizes", "told"}
    json.dumps([saved["number"], saved["began"], saved["left"]])
