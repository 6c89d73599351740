"""Directories of torch.distributed.checkpoint: torch's are read here, and ours by torch."""

import sys
from pathlib import Path

import pytest
import torch

from camshaft.handlers import checkpoints, export_dcp, load_dcp, load_matching

SCRIPT = Path(__file__).with_name("dcp_on_ranks.py")
sys.path.insert(0, str(SCRIPT.parent))
from dcp_on_ranks import made, same, whole  # noqa: E402  # after the path

sys.path.pop(0)


@pytest.fixture(scope="module")
def written(processes, tmp_path_factory):
    """Two directories that torch wrote on two ranks, and what is in them."""
    folder = tmp_path_factory.mktemp("dcp")
    processes.run_ranks(2, SCRIPT, "write", folder)
    return folder


def test_what_torch_wrote_on_two_ranks_is_read_in_one_process_to_the_bit(written):
    expected = torch.load(written / "truth.pt")
    for name, keys in {"nested": ("model", "optim"), "flat": ("", "optimizer")}.items():
        model, optimizer = made(7)
        load_dcp(written / name, dict(zip(keys, (model, optimizer), strict=True)))
        same(whole(model, optimizer), expected)
        model, _ = made(8)
        report = load_matching(model, written / name)
        assert len(report.loaded) == 4
        assert report.unused == []
        for key, each in model.state_dict().items():
            assert torch.equal(each, expected[f"model.{key}"])


@pytest.mark.quick(count=1)
@pytest.mark.parametrize("count", [2, 3])
def test_it_is_read_on_other_numbers_of_ranks_to_the_bit(processes, written, count):
    processes.run_ranks(count, SCRIPT, "read", written)


@pytest.mark.quick(count=1)
@pytest.mark.parametrize("count", [2, 1])
def test_torch_loads_what_is_exported_on_other_numbers_of_ranks(processes, tmp_path, count):
    processes.run_ranks(3 - count, SCRIPT, "run", tmp_path)
    export_dcp(checkpoints(tmp_path / "run").latest(), tmp_path / "exported")
    processes.run_ranks(count, SCRIPT, "load", tmp_path)
    back, again = made(10)
    load_dcp(tmp_path / "exported", {"model": back, "optimizer": again})
    same(whole(back, again), torch.load(tmp_path / "truth.pt"))
