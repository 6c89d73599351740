"""Trackio on this machine: its database, read back by its own client."""

import json
from pathlib import Path

import pytest

pytest.importorskip("trackio", reason='needs pip install "camshaft[trackio]"')

READ = """
import json
from trackio import Api
from trackio.sqlite_storage import SQLiteStorage

[run] = Api().runs("tests")
print(json.dumps([run.name, run.config, SQLiteStorage.get_logs("tests", run.name)]))
"""


def test_a_resumed_run_is_the_same_run_with_no_row_missing(processes, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    processes.run(Path(__file__).with_name("runs.py"), "Trackio", cwd=tmp_path)
    line = processes.run(READ, cwd=tmp_path).stdout.splitlines()[-1]
    name, config, rows = json.loads(line)
    assert len(name) == 32
    assert (config["lr"], config["model"]) == (0.1, {"width": 8})
    found = {}
    for row in rows:  # what comes twice is the same
        assert found.setdefault(row["iteration"], row)["loss"] == row["loss"]
    assert list(found) == list(range(1, 9))
    assert found[2]["note"]["_value"] == "words"
    assert found[2]["seen"]["caption"] == "noise"
    assert sum(found[2]["weights"]["values"]) == 9
