"""The example that prepares data on all processors."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy
import pytest

PREPARE = Path(__file__).parents[2] / "examples" / "prepare.py"


@pytest.fixture
def example(monkeypatch):
    """The example as a module, which the processes of its pool find by name."""
    spec = spec_from_file_location("prepare", PREPARE)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "prepare", module)
    spec.loader.exec_module(module)
    return module


def test_rank_0_prepares_in_parallel_and_the_other_finds_it_ready(processes, example, tmp_path):
    arguments = ("--directory", tmp_path / "data", "--files", "12", "--workers", "2")
    results = processes.run_ranks(2, PREPARE, *arguments)
    pattern = r"rank (\d): (\d+) samples, (\d+) batches, "
    found = [re.search(pattern, each.stdout).groups() for each in results]
    assert [each[0] for each in found] == ["0", "1"]
    assert found[0][1:] == found[1][1:]

    lengths = numpy.load(tmp_path / "data" / "lengths.npy")
    data = example.Prepared(tmp_path / "data")
    files = sorted(example.library())[:12]
    alone = [sample for file in files for sample in example.prepared(file)]
    assert lengths.tolist() == [len(sample) for sample in alone]
    assert bytes(data[7].tolist()) == alone[7]
    assert bytes(data[len(data) - 1].tolist()) == alone[-1]


def test_a_preparation_that_failed_begins_again(example, tmp_path):
    with pytest.raises(FileNotFoundError):
        example.prepare([tmp_path / "missing.py"], tmp_path / "data", 1)
    assert not (tmp_path / "data" / "lengths.npy").exists()
