"""Commands and readers on a checkpoint of two ranks, in pieces; and one that is hostile."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from camshaft.handlers import latest
from camshaft.handlers.checkpoint import BrokenCheckpoint, checkpoints
from camshaft.handlers.checkpoint.directory import Saved, saved_at
from camshaft.handlers.checkpoint.format import Checksums
from camshaft.handlers.tools.checkpoints import export, inspect, prune, verify

SCRIPT = Path(__file__).with_name("train_on_ranks.py")
OTHERS = ("ema.", "reme", "agai")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("written")
    results = processes.run_ranks(2, SCRIPT, directory, "fsdp", 6)
    return directory, json.loads(results[0].stdout)["end"]


@pytest.fixture
def run(written, tmp_path):
    return shutil.copytree(written[0], tmp_path / "run")


def numbers(state):
    return {name: each.double().reshape(-1).tolist() for name, each in state.items()}


def test_every_reader_puts_the_pieces_together(run, written, tmp_path, capsys):
    weights = {n: each for n, each in written[1].items() if n[0].isalpha() and n[:4] not in OTHERS}
    newest = checkpoints(run).latest()
    assert numbers(newest.state_dict("model")) == weights
    assert export(run, tmp_path / "model.safetensors", "model") == 0
    assert numbers(load_file(tmp_path / "model.safetensors")) == weights
    assert export(run, tmp_path / "model.pt", "model") == 0
    assert numbers(torch.load(tmp_path / "model.pt", weights_only=True)) == weights
    with pytest.raises(TypeError, match="more than tensors by name.*ends with .pt"):
        newest.export(tmp_path / "optimizer.safetensors", "optimizer")
    capsys.readouterr()
    assert inspect(newest.path, as_json=False, verify=True) == 0
    shown = capsys.readouterr().out
    assert "rank-*.safetensors" in shown
    assert verify(run) == 0


def test_pruning_strips_to_one_plain_file_of_weights(run, written, capsys):
    assert prune(run, latest(1), dry_run=False, strip=True) == 0
    older, newest = checkpoints(run)
    assert sorted(older.manifest.files) == ["ema.safetensors", "model.safetensors", "state.json"]
    assert verify(run) == 0
    assert numbers(newest.state_dict("model")) == {
        n: each for n, each in written[1].items() if n[0].isalpha() and n[:4] not in OTHERS
    }
    assert older.state_dict("model").keys() == newest.state_dict("model").keys()


@pytest.mark.parametrize("name", ["rank-00001.safetensors", "rank-00001.json", "pieces.json"])
def test_a_damaged_or_missing_file_of_any_rank_is_found(run, name, caplog):
    newest = checkpoints(run)[-1]
    content = bytearray((newest.path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (newest.path / name).write_bytes(content)
    assert verify(run) == 1
    assert checkpoints(run).latest().manifest.iteration == 3
    (newest.path / name).unlink()
    assert verify(run) == 1


def resigned(saved, change):
    """The same checkpoint with another table, and a manifest that fits it."""
    from dataclasses import replace

    place = saved.path / "pieces.json"
    table = json.loads(place.read_text())
    change(table)
    place.write_text(json.dumps(table))
    files = saved.manifest.files | {"pieces.json": Checksums.of(place)}
    manifest = replace(saved.manifest, files=files)
    (saved.path / "manifest.json").write_text(manifest.to_json())
    return Saved(saved.path, manifest)


def other_type(table):
    table["tensors"]["model"]["first.weight"][0] = "torch.float32"


def swapped(table):
    table["ranks"] = [each[::-1] for each in table["ranks"]]


def other_cut(table):
    table["cuts"][0][1] += 1


def unknown_tensor(table):
    table["tensors"]["model"]["other"] = table["tensors"]["model"]["first.weight"]


@pytest.mark.parametrize("change", [other_type, swapped, other_cut, unknown_tensor])
def test_a_table_that_does_not_fit_the_files_is_refused(run, change):
    saved = resigned(checkpoints(run)[-1], change)
    assert verify(saved.path) == 1
    with pytest.raises(BrokenCheckpoint):
        saved.state_dict("model")
    assert checkpoints(run).latest().manifest.iteration == 3


def test_a_table_may_not_name_another_rank_than_those_of_the_run(run):
    saved = resigned(saved_at(checkpoints(run)[-1].path), lambda t: t.update(ranks=[[7]]))
    with pytest.raises(BrokenCheckpoint, match="not among the 2 of the run"):
        saved.state_dict("model")
