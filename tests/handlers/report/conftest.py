"""A run's directory, written line by line."""

import json

import pytest


@pytest.fixture
def write(tmp_path):
    """Adds rows to a file of JSON lines in `run`."""

    def write_rows(*rows, name="rows.jsonl"):
        (tmp_path / "run").mkdir(exist_ok=True)
        with (tmp_path / "run" / name).open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return tmp_path / "run"

    return write_rows
