"""What a save costs a rank of thousands, besides the copying."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("saves_on_thousands.py")


@pytest.mark.slow
def test_later_saves_cost_the_same_on_any_number_of_ranks_until_a_tensor_changes(processes):
    few, many = (json.loads(processes.run(SCRIPT, size).stdout) for size in ("64", "4096"))
    (first, digest, names, _), (second, again, same, _), came, recut = many
    assert (again, same) == (digest, names)
    assert second < first / 100
    assert second < few[1][0] * 1.1
    # A weight comes, and then lies otherwise: the table is made anew, and so is what is written.
    assert came[1:] != recut[1:]
    assert (came[2:], recut[2:]) == ([25, [4097, 2]], [25, [2, 4097]])
    assert len({digest, came[1], recut[1]}) == 3
