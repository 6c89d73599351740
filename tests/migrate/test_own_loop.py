"""The page for people with a loop of their own: what it shows is what its reader sees."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_scripts_of_the_page_run_and_part_where_it_says(processes, tmp_path):
    page = ROOT / "docs" / "migrate" / "own-loop.md"
    processes.run(ROOT / "tests" / "tutorials" / "follow.py", page, cwd=tmp_path)
