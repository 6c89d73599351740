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


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "1:raise:collective:5",
        "1:kill:step:3",
        "0:kill:writing:4",
        "0:raise:manifest:4",
        "1:stop:evaluation:6",
    ],
)
def test_ranks_end_in_time_when_one_fails_and_the_run_goes_on(job, whole, fault):
    check(job(), whole, fault)


@pytest.mark.slow
def test_torchrun_starts_a_run_again_after_a_hang_and_it_is_the_same_run(job, whole, torchrun):
    hanging = job()
    torchrun(hanging.directory, "--fault=1:stop:collective:5", options=["--max-restarts=3"])
    assert hanging.failed_at
    assert hanging.outcome(2) == whole(2)
    assert hanging.left == []


@pytest.mark.slow
def test_the_summary_of_torchrun_says_which_rank_failed_first_and_why(job, torchrun):
    result = torchrun(job().directory, "--fault=1:raise:collective:5", code=1)
    summary = result.stderr[result.stderr.index("Root Cause") :]
    assert "ValueError: the fault of this rank" in summary  # rank 1's own, or as told to rank 0
