"""A run that checks its steps is killed, goes on, and each of its steps can be computed again."""

import json
import sys
import time
from pathlib import Path

import pytest

from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.tools.replay import replay_iteration

from .runs import check_same_run, rows_of

REPLAY = Path(__file__).parents[2] / "examples/replay.py"


def prints_of(directory):
    rows = map(json.loads, (directory / "fingerprints.jsonl").read_text().splitlines())
    return [row | {"generators": {}} for row in rows]  # those that nobody seeds or draws from


@pytest.mark.soak
def test_killed_at_any_time_it_is_the_same_run_whose_steps_are_computed_again(
    processes, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    short = "--max-epochs=3"
    processes.run(REPLAY, short, "--directory", "whole", cwd=tmp_path)
    for least in (30, 110):
        with processes.start(REPLAY, short, cwd=tmp_path) as process:
            while process.poll() is None and (
                len(rows_of(Path("runs/replay"))) < least or not checkpoints("runs/replay")
            ):
                time.sleep(0.005)
            process.kill()
        assert process.returncode == -9
    processes.run(REPLAY, short, cwd=tmp_path)
    check_same_run(Path("runs/replay"), Path("whole"))
    whole = prints_of(Path("whole"))
    assert prints_of(Path("runs/replay")) == whole
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    for iteration, start in ((150, 125), (169, 150)):  # the step of the first is checked
        command = [sys.executable, str(REPLAY), short]
        code = replay_iteration(Path("runs/replay"), iteration, command, as_json=True)
        told = json.loads(capsys.readouterr().out)
        assert (code, [*told["compared"]]) == (
            0,
            ["runs/replay/fingerprints.jsonl", "runs/replay/rows.jsonl"],
        )
        own = told["fingerprints"] | {"generators": {}}
        assert own.items() <= whole[iteration - 1].items()
        assert told["from"] == f"runs/replay/iteration-0000000{start}"
