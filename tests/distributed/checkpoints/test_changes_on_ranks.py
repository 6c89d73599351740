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
