"""Every example can be tried out on a few batches."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("example", "limit"),
    [
        ("char_gpt", "--max-steps=1"),
        ("digits", "--max-epochs=1"),
        ("fine_tuning", "--max-epochs=1"),
        ("gan", "--max-epochs=1"),
        ("preemptible", "--max-epochs=1"),
    ],
)
def test_an_example_can_be_tried_out_on_two_batches(example, limit, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{example}.py"))["main"](["--max-batches=2", limit])
    assert "max_batches=2: each pass over data" in caplog.text
