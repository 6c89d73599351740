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


RANK_ZERO = Path(__file__).parents[2] / "benchmarks" / "thousands.py"


@pytest.mark.slow
def test_a_save_costs_rank_0_the_same_calls_of_the_store_and_the_disk_on_any_number_of_ranks(
    processes,
):
    few, many = (
        json.loads(processes.run(RANK_ZERO, "--counts", "--size", size).stdout)[-1]
        for size in ("300", "900")
    )
    removed = [few.pop("os.unlink"), many.pop("os.unlink")]
    assert few == many
    assert max(removed) < 700  # its share: there are 603 and 1803 files
    assert many["os.stat"] <= 30
    assert many["os.listdir"] <= 6
    store = {name: count for name, count in many.items() if name.startswith("store.")}
    assert store == {
        # Its own letter, all letters, what is to be removed; and where that was said before.
        **{"store.append": 3, "store.add": 2, "store.get": 1, "store.delete_key": 4},
    }
