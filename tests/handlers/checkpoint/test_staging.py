"""Staging: a copy of everything, in memory that is used again."""

import json

import torch
from safetensors.torch import load

from camshaft.handlers.checkpoint.snapshot import Snapshot
from camshaft.handlers.checkpoint.staging import Staging, uncopied


def whole(source):
    content = b"".join(source.pieces())
    assert len(content) == source.size
    return content


def test_nothing_that_changes_later_is_in_the_copy():
    tree, weight = {"losses": [1.0]}, torch.ones(2)
    files = Staging().take(Snapshot(tree, {"model": {"weight": weight}, "train": {}}))
    tree["losses"].append(2.0)
    weight.zero_()
    assert json.loads(whole(files["state.json"])) == {"losses": [1.0]}
    assert load(whole(files["model.safetensors"]))["weight"].tolist() == [1, 1]
    assert load(whole(files["train.safetensors"])) == {}
    assert whole(files["model.safetensors"]) == whole(files["model.safetensors"])


def test_memory_is_used_again_while_names_shapes_and_types_stay():
    staging = Staging()

    def address(**tensors):
        (piece,) = staging.take(Snapshot({}, {"model": tensors}))["model.safetensors"].pieces()
        return torch.frombuffer(piece, dtype=torch.uint8).data_ptr()

    first = address(a=torch.ones(1000))
    assert address(a=torch.zeros(1000)) == first
    (piece,) = staging.take(Snapshot({}, {"model": {"b": torch.ones(3)}}))[
        "model.safetensors"
    ].pieces()
    assert load(bytes(piece)).keys() == {"b"}
    assert staging.take(Snapshot({}, {})).keys() == {"state.json"}


def test_without_a_copy_the_same_is_written():
    snapshot = Snapshot({"a": 1}, {"model": {"weight": torch.arange(6.0).reshape(2, 3).T}})
    files, copied = uncopied(snapshot), Staging().take(snapshot)
    assert {name: whole(files[name]) for name in files} == {
        name: whole(copied[name]) for name in copied
    }
