"""The character-level GPT, for a few steps and stopped in the middle."""

import json
import re
import signal
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "char_gpt.py"
SHORT = ("--max-steps", "40", "--max-length", "64", "--batch-size", "8")


def rows(directory):
    return [json.loads(line) for line in (directory / "rows.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    return directory, processes.run(EXAMPLE, "--directory", directory, *SHORT)


def test_in_forty_steps_it_learns_which_characters_there_are(whole):
    directory, result = whole
    bits = float(re.search(r"^40 steps: ([\d.]+) bits a character$", result.stdout, re.M)[1])
    assert bits < 4.6  # 7 bits at first
    assert "    def " in result.stdout
    assert rows(directory)[-1]["step"] == 40


@pytest.mark.slow
def test_asked_to_stop_it_carries_on_as_the_same_run(whole, processes, tmp_path):
    with processes.start(EXAMPLE, "--directory", tmp_path, *SHORT) as process:
        while not (tmp_path / "rows.jsonl").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    result = processes.run(EXAMPLE, "--directory", tmp_path, *SHORT)
    assert result.stdout == whole[1].stdout
    assert rows(tmp_path) == rows(whole[0])
