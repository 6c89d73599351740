"""Rows of texts, and batches of texts by tokens, on ranks that become others in mid-epoch."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("packed_on_ranks.py")


def stage(processes, directory, name, count, stop_at=0):
    """What each of so many ranks tells of its part of the run."""
    if count > 1:
        processes.run_ranks(count, SCRIPT, directory, name, stop_at)
    else:
        processes.run(SCRIPT, directory, name, stop_at)
    return [json.loads((directory / f"{name}-{rank}.json").read_text()) for rank in range(count)]


def steps_of(parts, kind):
    """The texts or rows of each iteration, over all ranks."""
    steps = {}
    for part in parts:
        for iteration, seen in part[kind]["seen"].items():
            steps.setdefault(iteration, []).extend(seen)
    return {iteration: sorted(seen) for iteration, seen in steps.items()}


@pytest.mark.slow
def test_four_ranks_and_then_two_take_the_steps_of_one_process(processes, tmp_path):
    alone, others = tmp_path / "alone", tmp_path / "ranks"
    alone.mkdir()
    others.mkdir()
    whole = stage(processes, alone, "whole", 1)
    first = stage(processes, others, "first", 4, 3)
    last = stage(processes, others, "last", 2)
    assert "refused" not in whole[0]
    assert "at most 1 samples a batch, for 2 ranks that share it" in last[0]["refused"]
    for kind in ("rows", "by_tokens"):
        assert steps_of(first, kind) | steps_of(last, kind) == steps_of(whole, kind)
        assert len(steps_of(whole, kind)) > 2 * 5
        assert {part[kind]["reason"] for part in last} == {"max_epochs"}
        assert last[0][kind]["weights"] == last[1][kind]["weights"]
        pairs = zip(last[0][kind]["weights"], whole[0][kind]["weights"], strict=True)
        assert max(abs(a - b) for a, b in pairs) <= 1e-12
        again = stage(processes, others, f"again-{kind}", 2)  # over: nothing is read
        assert not again[0][kind]["seen"]
        assert again[0][kind]["weights"] == last[0][kind]["weights"]


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [2, 9])
def test_a_run_that_is_left_in_mid_epoch_goes_on_to_the_same_bits(processes, tmp_path, stop_at):
    whole_at, cut_at = tmp_path / "whole", tmp_path / "cut"
    whole_at.mkdir()
    cut_at.mkdir()
    whole = stage(processes, whole_at, "whole", 2)
    first, last = stage(processes, cut_at, "first", 2, stop_at), stage(processes, cut_at, "last", 2)
    for rank in (0, 1):
        for kind in ("rows", "by_tokens"):
            seen = first[rank][kind]["seen"] | last[rank][kind]["seen"]
            assert seen == whole[rank][kind]["seen"]
            assert last[rank][kind]["weights"] == whole[rank][kind]["weights"]
