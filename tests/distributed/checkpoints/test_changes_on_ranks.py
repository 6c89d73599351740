"""What a run of two ranks has changed goes on, also what only one of them has."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("changes_on_ranks.py")


@pytest.mark.slow
def test_settings_that_a_function_changes_are_part_of_a_run_of_two_ranks(processes, tmp_path):
    for done in processes.run_ranks(2, SCRIPT, tmp_path):
        found = json.loads(done.stdout)
        assert len(found) == 12
        assert all(found.values()), found


@pytest.mark.slow
def test_threads_of_another_rank_that_have_changed_are_told_of_once(processes, tmp_path):
    script = SCRIPT.with_name("machine_on_ranks.py")
    first, second = processes.run_ranks(2, script, tmp_path / "run")
    said = "process.torch.get_num_threads(): '1' in the checkpoint -> '2' here"
    assert first.stderr.count(said) == 1
    assert said not in second.stderr
