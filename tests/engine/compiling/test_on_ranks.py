"""Compiled steps of models on several ranks."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("compiled_on_ranks.py")


@pytest.mark.slow
def test_compiled_steps_of_parallel_and_sharded_models_are_the_plain_ones(processes, tmp_path):
    processes.run_ranks(2, SCRIPT, tmp_path)
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["0", "1"]
