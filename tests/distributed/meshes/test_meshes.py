"""Meshes whose ranks work on one batch: parts of a sequence."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
import torch

CONTEXT = Path(__file__).with_name("context_on_ranks.py")


def result(directory):
    rows = [json.loads(line) for line in (directory / "rows.jsonl").read_text().splitlines()]
    return rows, torch.load(directory / "weights.pt")


@pytest.fixture(scope="module")
def alone(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("alone")
    processes.run_ranks(1, CONTEXT, directory)
    return result(directory)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_that_each_have_a_part_of_every_sequence_train_as_one_process(
    processes, tmp_path, alone, count
):
    results = processes.run_ranks(count, CONTEXT, tmp_path)
    assert [each.stderr for each in results] == [""] * count
    rows, weights = result(tmp_path)
    assert len(rows) == len(alone[0]) == 18
    for ours, theirs in zip(rows, deepcopy(alone[0]), strict=True):
        assert ours.keys() == theirs.keys()
        ours.pop("loss", None), theirs.pop("loss", None)  # of the first rank's part
        assert ours == pytest.approx(theirs, rel=1e-9)
    for name, each in weights.items():
        close = torch.tensor(each), torch.tensor(alone[1][name])
        torch.testing.assert_close(*close, rtol=1e-11, atol=1e-13)


def test_a_run_over_parts_of_sequences_resumes_to_the_same_bits(processes, tmp_path):
    for name, stops in (("whole", ()), ("left", (4,))):
        (tmp_path / name).mkdir()
        for stop in stops:
            processes.run_ranks(2, CONTEXT, tmp_path / name, stop, code=7)
        processes.run_ranks(2, CONTEXT, tmp_path / name)
    assert result(tmp_path / "whole") == result(tmp_path / "left")
