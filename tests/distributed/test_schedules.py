"""Schedules count performed steps, on however many ranks, whether interrupted or not."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

HERE = Path(__file__).parent


@cache
def ranks(count, stop_at):
    """What each of so many ranks has written down."""
    with TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}"]
        command += ["--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
        result = subprocess.run(
            [*command, str(HERE / "schedules_on_ranks.py"), directory, str(stop_at)],
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert result.returncode == 0, result.stderr[-4000:]
        assert "lr_scheduler" not in result.stderr  # torch's warnings of a wrong order
        files = [Path(directory) / f"rank-{rank}.json" for rank in range(count)]
        return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize(
    ("count", "stop_at"),
    [
        *((2, 0), (2, 7)),
        *(pytest.param(4, stop_at, marks=pytest.mark.soak) for stop_at in (0, 8)),
    ],
)
def test_the_rates_are_the_same_on_however_many_ranks_interrupted_or_not(count, stop_at):
    (alone,) = ranks(1, 0)
    assert len(alone["rates"]) == 9
    assert [each["rates"] for each in ranks(count, stop_at)] == [alone["rates"]] * count


def test_an_interrupted_run_with_frozen_layers_is_the_same_run_on_two_ranks():
    whole, interrupted = ranks(2, 0), ranks(2, 7)
    assert whole == interrupted
    assert whole[0]["weights"] == whole[1]["weights"]
