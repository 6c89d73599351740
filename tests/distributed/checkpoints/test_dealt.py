"""Old checkpoints that several ranks remove, each a share of the files."""

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.directory import verify_files

SCRIPT = Path(__file__).with_name("dealt_on_ranks.py")


def test_each_rank_removes_a_share_of_an_old_checkpoint_and_nothing_of_it_is_left(
    processes, tmp_path
):
    results = processes.run_ranks(3, SCRIPT, tmp_path)
    iterations, removed = zip(*(json.loads(each.stdout) for each in results), strict=True)
    assert iterations == (4, 4, 4)
    (last,) = checkpoints(tmp_path)
    names = [*last.manifest.files, "manifest.json"]
    assert Counter(name for each in removed for name in each) == Counter(3 * names)
    assert sum(map(bool, removed)) > 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", last.path.name]


@pytest.mark.slow
def test_a_rank_that_is_killed_while_it_removes_leaves_a_whole_checkpoint_and_the_next_run_cleans(
    processes, tmp_path
):
    results = processes.run_ranks(3, SCRIPT, tmp_path, "kill", code=None)
    assert results[2].returncode == -signal.SIGKILL
    assert list(tmp_path.glob(".del-*"))
    for each in checkpoints(tmp_path):
        verify_files(each)
    assert checkpoints(tmp_path).latest().manifest.iteration in (2, 3)
    iterations = [json.loads(each.stdout)[0] for each in processes.run_ranks(3, SCRIPT, tmp_path)]
    assert iterations == [4, 4, 4]
    (last,) = checkpoints(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", last.path.name]
