"""Sharded models train and measure like the same model in one process."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLOW, SOAK = pytest.mark.slow, pytest.mark.soak
QUICK = 4
"""How many checks the launch in `make test` makes."""


@pytest.mark.parametrize(
    ("count", "way", "checks"),
    [
        (2, "fsdp", QUICK),
        pytest.param(4, "tp", 99, marks=SLOW),
        pytest.param(4, "fsdp", 99, marks=SOAK),
        pytest.param(4, "hsdp", 99, marks=SOAK),
        pytest.param(2, "fsdp", 99, marks=SOAK),
        pytest.param(3, "fsdp", QUICK, marks=SOAK),
        pytest.param(2, "tp", 99, marks=SOAK),
    ],
)
def test_training_is_that_of_one_process(processes, count, way, checks):
    for result in processes.run_ranks(count, HERE / "training_on_ranks.py", way, checks):
        assert result.stdout.count("rank ") == min(checks, 15)
