"""A rank fails: the others end in time and say why, and the run goes on to the same bits."""

import pytest


def go_on(job, whole, count):
    """Start again what has failed, and compare what came out with the run that nobody disturbed."""
    assert [each.code for each in job.run(count)] == [0] * count
    assert job.outcome(count) == whole(count)
    assert job.left == []


def check(job, whole, fault, count=2):
    """Run with a fault: how it ended; then go on."""
    rank, kind, *_ = fault.split(":")
    ends = job.run(count, f"--fault={fault}")
    assert job.failed_at, "the fault did not happen"
    assert all(each.code != 0 for each in ends)
    others = [each for number, each in enumerate(ends) if number != int(rank)]
    assert all(each.seconds < 4 + 5 for each in others)
    for each in others:
        if kind == "raise":
            assert f"rank {rank} (" in each.stderr, each.stderr[-3000:]
            assert "failed first: ValueError: the fault of this rank" in each.stderr
        else:
            assert f"rank {rank} has said nothing: killed, hanging" in each.stderr
    job.check_saves(ends[0].stderr)
    go_on(job, whole, count)


def test_a_rank_that_raises_tells_the_others_why_and_the_run_goes_on(job, whole):
    check(job(), whole, "1:raise:collective:5")


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    ["1:kill:step:3", "0:kill:writing:4", "0:raise:manifest:4", "1:stop:evaluation:6"],
)
def test_ranks_end_in_time_when_one_fails_and_the_run_goes_on(job, whole, fault):
    check(job(), whole, fault)
