"""DDP on more than two ranks: a resumed run adds up gradients in the same order."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("buckets_on_ranks.py")


def test_a_resumed_run_of_ddp_is_the_same_run_to_the_last_bit_on_three_ranks(processes, tmp_path):
    processes.run_ranks(3, SCRIPT, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 4])
def test_so_it_is_however_the_model_and_the_step_are_made(processes, tmp_path, count):
    processes.run_ranks(count, SCRIPT, tmp_path, "all")
