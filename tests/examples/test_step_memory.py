"""The example that tells what a step would need of memory, beside steps that are taken."""

import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "step_memory.py"
COUNTED = Path(__file__).with_name("counted_step.py")
SMALL = ("--layers", "2", "--width", "128", "--length", "64")


def told(result):
    return [int(size) for size in re.findall(r": (\d+) bytes", result.stdout)]


@pytest.mark.parametrize("recompute", [False, True])
def test_it_tells_the_bytes_of_a_step_in_one_process(processes, recompute):
    options = ["--recompute"] * recompute
    (fake,) = told(processes.run(SCRIPT, *SMALL, "--batch-size", "12", *options))
    real = int(processes.run(COUNTED, SCRIPT, "1", "12", str(int(recompute))).stdout)
    assert abs(fake - real) < real / 1000


@pytest.mark.slow
def test_one_process_tells_the_bytes_of_each_of_two_ranks(processes):
    (fake,) = told(processes.run(SCRIPT, *SMALL, "--batch-size", "12", "--ranks", "2"))
    for rank in processes.run_ranks(2, COUNTED, SCRIPT, "2", "12", "0"):
        real = int(rank.stdout.split()[-1])
        # A message's buffers are freed by another thread, on a busy machine a little later.
        assert abs(fake - real) < real / 500


def test_it_doubles_the_batch_until_it_no_longer_fits(processes):
    result = processes.run(SCRIPT, *SMALL, "--batch-size", "3", "--limit", "0.26")
    sizes = told(result)
    assert "batch size 6:" in result.stdout
    assert sizes == sorted(sizes)
    assert [size > 0.26 * 2**30 for size in sizes] == [False] * (len(sizes) - 1) + [True]
