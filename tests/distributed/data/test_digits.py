"""The digits example is the same run on one, two and four ranks."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("digits_on_any_ranks.py")


def digits(processes, directory, count, epochs=2, bits=64, stop_at=0):
    directory.mkdir(exist_ok=True)
    arguments = (directory, epochs, bits, stop_at)
    if count > 1:
        processes.run_ranks(count, SCRIPT, *arguments)
    else:
        processes.run(SCRIPT, *arguments)
    parts = [json.loads((directory / f"{rank}.json").read_text()) for rank in range(count)]
    steps = {
        iteration: sorted(sum((part["samples"][iteration] for part in parts), []))  # noqa: RUF017
        for iteration in parts[0]["samples"]
    }
    return parts[0], steps


def difference(one, other):
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


@pytest.mark.soak
def test_it_is_the_same_run_on_one_two_and_four_ranks_and_on_one_after_the_other(
    processes, tmp_path
):
    alone, steps = digits(processes, tmp_path / "1", 1)
    assert len(steps) == 72
    _, begun = digits(processes, tmp_path / "cut", 4, stop_at=50)
    for name, count in (("2", 2), ("4", 4), ("cut", 2)):
        found, same = digits(processes, tmp_path / name, count)
        same = begun | same if name == "cut" else same
        assert same == steps
        assert difference(found["weights"], alone["weights"]) <= 1e-12
        assert difference(found["test"], alone["test"]) <= 1e-12
        for epoch, values in found["losses"].items():
            # The accuracy of an epoch that was cut lacks what other ranks had counted.
            compared = 2 if name == "cut" else 3
            assert difference(values[:compared], alone["losses"][epoch][:compared]) <= 1e-12


@pytest.mark.soak
def test_in_float32_it_is_near(processes, tmp_path):
    alone, steps = digits(processes, tmp_path / "1", 1, epochs=5, bits=32)
    for count in (2, 4):
        found, same = digits(processes, tmp_path / str(count), count, epochs=5, bits=32)
        assert same == steps
        assert difference(found["weights"], alone["weights"]) < 1e-4
        assert difference(found["test"], alone["test"]) < 1e-4
