"""Meshes whose ranks work together: on parts of a sequence, and by experts of their own."""

import json
import shutil
from copy import deepcopy
from pathlib import Path

import pytest
import torch

CONTEXT = Path(__file__).with_name("context_on_ranks.py")
EXPERTS = Path(__file__).with_name("experts_on_ranks.py")


def result(directory):
    rows = [json.loads(line) for line in (directory / "rows.jsonl").read_text().splitlines()]
    return rows, torch.load(directory / "weights.pt")


@pytest.fixture(scope="module")
def alone(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("alone")
    processes.run_ranks(1, CONTEXT, directory)
    return result(directory)


@pytest.mark.quick(count=1)
@pytest.mark.parametrize("count", [2, 4])
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


@pytest.mark.slow
def test_a_run_over_parts_of_sequences_resumes_to_the_same_bits(processes, tmp_path):
    for name, stops in (("whole", ()), ("left", (4,))):
        (tmp_path / name).mkdir()
        for stop in stops:
            processes.run_ranks(2, CONTEXT, tmp_path / name, stop, code=7)
        processes.run_ranks(2, CONTEXT, tmp_path / name)
    assert result(tmp_path / "whole") == result(tmp_path / "left")


@pytest.fixture(scope="module")
def experts_alone(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("experts")
    processes.run_ranks(1, EXPERTS, directory, 1)
    return result(directory)


def check_close(found, wanted):
    assert found.keys() == wanted.keys()
    for name, each in found.items():
        close = torch.tensor(each), torch.tensor(wanted[name])
        torch.testing.assert_close(*close, rtol=0, atol=1e-6)


@pytest.mark.quick(count=1)
@pytest.mark.parametrize(("count", "spread"), [(2, 2), (4, 2), (4, 4), (2, 1)])
def test_experts_on_ranks_of_their_own_train_as_in_one_process(
    processes, tmp_path, experts_alone, count, spread
):
    results = processes.run_ranks(count, EXPERTS, tmp_path, spread)
    assert [e.stderr for e in results if e.stderr and "_redistribute" not in e.stderr] == []
    rows, weights = result(tmp_path)
    assert len(rows) == len(experts_alone[0]) == 24
    for ours, theirs in zip(rows, experts_alone[0], strict=True):
        of_all = [{key: row[key] for key in row if key != "loss"} for row in (ours, theirs)]
        assert of_all[0] == pytest.approx(of_all[1], rel=1e-5)
    check_close(weights, experts_alone[1])


@pytest.mark.slow
def test_a_run_with_experts_resumes_to_the_same_bits_and_on_other_meshes(processes, tmp_path):
    whole, left, other = (tmp_path / name for name in ("whole", "left", "other"))
    for directory in (whole, left):
        directory.mkdir()
    processes.run_ranks(4, EXPERTS, whole, 2)
    for stop in (4, 11):
        processes.run_ranks(4, EXPERTS, left, 2, stop, code=7)
    shutil.copytree(left, other)
    processes.run_ranks(4, EXPERTS, left, 2)
    assert result(left) == result(whole)
    processes.run_ranks(2, EXPERTS, other, 2)
    check_close(result(other)[1], result(whole)[1])
