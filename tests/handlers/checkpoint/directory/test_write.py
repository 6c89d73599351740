"""Writing: a checkpoint is whole or not there, and comes back as it was."""

import os

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from camshaft.handlers.checkpoint.directory import Directory, tensors_by_name, tree_in, verify_files
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.save.snapshot import Snapshot

TENSORS = {
    "matrix": torch.arange(6.0).reshape(2, 3),
    "bfloat16": torch.ones(3, dtype=torch.bfloat16),
    "bool": torch.tensor([True, False]),
    "int64": torch.tensor([2**60]),
    "scalar": torch.tensor(1.5),
    "empty": torch.empty(0, 4),
}


def save(directory, iteration=0, **tensors):
    trees = {"state.json": {"plain": [1, "two"]}}
    files = Snapshot(trees, {"model": tensors or TENSORS, "train": {}}).streamed()
    return Directory(directory).write(files, Manifest(iteration=iteration))


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_every_kind_of_tensor_comes_back(tmp_path):
    saved = save(tmp_path, 7)
    verify_files(saved)
    tensors = tensors_by_name(saved)
    assert tree_in(saved.path) == {"plain": [1, "two"]}
    assert tensors["model"].keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        found = tensors["model"][name].read()
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found, tensor), name


def test_tied_weights_are_there_under_each_name_and_anybody_can_load_them(tmp_path):
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False), nn.LSTM(3, 3))
    model[1].weight = model[0].weight
    saved = save(tmp_path, **model.state_dict())
    other = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False), nn.LSTM(3, 3))
    other.load_state_dict(load_file(saved.path / "model.safetensors"))
    assert all(map(torch.equal, other.state_dict().values(), model.state_dict().values()))


def test_the_directory_holds_checkpoints_and_the_name_of_the_latest(tmp_path):
    save(tmp_path / "run", 9)
    save(tmp_path / "run", 10)
    assert names(tmp_path / "run") == ["LATEST", "iteration-0000000009", "iteration-0000000010"]
    assert (tmp_path / "run/LATEST").read_text() == "iteration-0000000010\n"
    files = ["manifest.json", "model.safetensors", "state.json", "train.safetensors"]
    assert names(tmp_path / "run/iteration-0000000010") == files
    assert len({path.stat().st_mode for path in (tmp_path / "run").glob("*/*")}) == 1


def test_a_directory_that_cannot_be_is_an_error_that_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"could not write the checkpoint .*file/run/iteration-"):
        save(tmp_path / "file/run")


HUNGRY = """
import sys
import torch
from pathlib import Path
from torch import nn
from camshaft import Events, supervised
from camshaft.handlers import Checkpoint

torch.set_num_threads(1)
model = nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(8)))
optimizer = torch.optim.Adam(model.parameters())
engine = supervised(model, optimizer, nn.functional.mse_loss)
engine.add(Checkpoint(sys.argv[1], resume=True, background=sys.argv[2] == "True"))
engine.on(Events.STARTED)(lambda state: print(state.epoch))
engine.run([(torch.ones(2, 1000), torch.ones(2, 1000))] * 2, max_epochs=int(sys.argv[3]))
lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(lines["VmHWM"].split()[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux tells the peak there")
@pytest.mark.parametrize("background", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_resumed_run_never_needs_more_memory_than_a_fresh_one(processes, tmp_path, background):
    def peak(directory, epochs, goes_on_from):
        # Otherwise glibc keeps more or less of what is freed, by what was freed before.
        large = {"MALLOC_MMAP_THRESHOLD_": "131072"}
        output = processes.run(HUNGRY, directory, background, epochs, env=large, fresh=True).stdout
        assert int(output.split()[0]) == goes_on_from
        return int(output.split()[1])

    peak(tmp_path / "run", 2, 0)
    resumed = peak(tmp_path / "run", 4, 2)
    assert resumed <= 1.02 * peak(tmp_path / "fresh", 4, 0)


def test_a_file_is_read_tensor_by_tensor_however_often_it_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr("camshaft.handlers.checkpoint.directory.contents.MAPPED", 10)
    saved = save(tmp_path)
    stored = tensors_by_name(saved)["model"]
    assert len(stored) == len(TENSORS)
    for name in [*TENSORS, *TENSORS]:
        assert torch.equal(stored[name].read(), TENSORS[name])


def test_a_save_does_not_fail_for_the_name_of_the_latest(tmp_path, caplog):
    (tmp_path / "LATEST").mkdir()
    verify_files(save(tmp_path, 1))
    assert names(tmp_path) == ["LATEST", "iteration-0000000001"]
    assert "iteration-0000000001 is saved, but LATEST does not say so" in caplog.text


def test_what_could_not_be_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("camshaft.handlers.checkpoint.format.tensors.LARGEST_HEADER", 1000)
    many = {f"a rather long name {number}": torch.zeros(1) for number in range(20)}
    with pytest.raises(ValueError, match=r"20 tensors, such as 'a rather long name 0', are too"):
        Snapshot({"state.json": {}}, {"model": many}).streamed()
