"""The example of a sharded model, as its users run it."""

import json
import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from camshaft.handlers import checkpoints

GPT = Path(__file__).parents[2] / "examples" / "fsdp_gpt.py"
SMALL = ("--length", "32", "--width", "32", "--layers", "2", "--modules", "a*.py")


def bits(result):
    return float(re.search(r"([\d.]+) bits a byte", result.stdout)[1])


@pytest.mark.slow
def test_it_is_one_run_on_one_process_on_ranks_and_after_a_restart_on_others(processes, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    alone = processes.run(GPT, "--directory", whole, "--max-steps", "6", *SMALL)
    options = ("--directory", parts, *SMALL)
    processes.run_ranks(4, GPT, "--max-steps", "3", "--replicas", "2", *options)
    first, _ = processes.run_ranks(2, GPT, "--max-steps", "6", *options)
    assert "6 steps on 2 ranks" in first.stdout
    assert bits(first) == pytest.approx(bits(alone), abs=1e-3)
    rows = [json.loads(row) for row in (parts / "rows.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "val/loss" in row] == [3, 6]
    one, two = (
        load_file(checkpoints(each / "export").latest().path / "ema.safetensors")
        for each in (whole, parts)
    )
    assert one.keys() == two.keys()
    assert all((one[name] - two[name]).abs().max() < 1e-3 for name in one)
