"""DDP on more than two ranks: a resumed run adds up gradients in the same order."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("buckets_on_ranks.py")


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, pytest.param(4, marks=pytest.mark.soak)])
def test_a_resumed_run_of_ddp_is_the_same_run_to_the_last_bit(processes, tmp_path, count):
    processes.run_ranks(count, SCRIPT, tmp_path)
