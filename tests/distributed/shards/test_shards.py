"""Sharded models train and measure like the same model in one process."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLOW, SOAK = pytest.mark.slow, pytest.mark.soak
QUICK, ALL = 4, 18
"""How many checks of training a launch makes: in `make test`, and elsewhere."""


def check(processes, count, script, checks, *arguments):
    for rank, result in enumerate(processes.run_ranks(count, HERE / script, *arguments)):
        assert result.stdout.count(f"rank {rank}: ") == checks


@pytest.mark.parametrize(
    ("count", "way", "checks"),
    [
        (2, "fsdp", QUICK),
        pytest.param(4, "fsdp", ALL, marks=SLOW),
        pytest.param(4, "tp", QUICK, marks=SLOW),
        *(
            pytest.param(n, way, ALL, marks=SOAK)
            for n, way in ((4, "tp"), (4, "hsdp"), (2, "fsdp"), (2, "tp"))
        ),
        pytest.param(3, "fsdp", QUICK, marks=SOAK),
    ],
)
def test_training_is_that_of_one_process(processes, count, way, checks):
    check(processes, count, "training_on_ranks.py", checks, way, checks)


@pytest.mark.parametrize(
    ("count", "way"),
    [
        *(pytest.param(4, way, marks=SLOW) for way in ("fsdp", "tp")),
        *(pytest.param(count, way, marks=SOAK) for count, way in ((4, "hsdp"), (2, "fsdp"))),
    ],
)
def test_measurements_are_those_of_one_process(processes, count, way):
    check(processes, count, "measuring_on_ranks.py", 6, way)


@pytest.mark.slow
def test_what_is_not_supported_is_an_error_before_the_first_iteration(processes):
    check(processes, 4, "refusals_on_ranks.py", 16)
