"""A wall clock that is set back, in a run or between two parts of it, changes nothing."""

import signal

import pytest

from camshaft.handlers.checkpoint import checkpoints

OPTIONS = ("--logs", "--save-every", 1, "--validate-every", 2)
HOUR = 3600


@pytest.mark.soak
def test_a_clock_that_goes_back_changes_nothing(processes, run, machine, tmp_path):
    """It goes back as time passes, and each part of the run begins hours before the last one."""
    expected = run(tmp_path / "whole", *OPTIONS, **machine()).result()
    directory, durable = tmp_path / "set back", 0
    for number, stop in enumerate([7, 14]):
        process = run(
            *(directory, "--seed", number, *OPTIONS),
            **machine(BACKWARDS=1, CLOCK=-9 * HOUR * number),
        )
        process.wait_for(stop)
        process.kill(signal.SIGKILL)
        process.end()
        assert durable <= process.reached - 2 <= process.newest
        durable = process.newest
    assert durable >= 12
    last = run(directory, "--seed", 9, *OPTIONS, **machine(BACKWARDS=1, CLOCK=-30 * HOUR))
    outcome = last.result()
    assert outcome == expected
    kept = [each.manifest.iteration for each in checkpoints(directory)]
    assert kept[-1] == process.LENGTH
    assert kept == sorted(kept)
    page = directory.with_name("report.html")
    for command, *options in (["inspect"], ["report", "-o", page], ["verify"]):
        ran = processes.run(COMMAND, command, directory, *options)
        assert "Traceback" not in ran.stderr


COMMAND = """
import sys
from camshaft.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
