"""`camshaft diff`: in what two runs, checkpoints or configs differ."""

import json
import math

import pytest
import torch

from camshaft import seed_everything, supervised
from camshaft.handlers import Checkpoint, Journal, checkpoints, latest
from camshaft.handlers.checkpoint.directory import Directory
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.save import Snapshot


def trained(directory, width=4, lr=0.0625, epochs=2):
    seed_everything(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    config = {"lr": lr, "model": {"width": width}}
    engine.add(Checkpoint(directory, keep=latest(9)), Journal(directory, config=config))
    engine.run([(torch.ones(4, 3), torch.ones(4, 1))] * 3, max_epochs=epochs)
    return directory


@pytest.fixture
def differences(camshaft):
    """The differences that `--json` gives, by their names."""

    def of(one, two, code=1):
        found, lines, errors = camshaft("diff", one, two, "--json")
        assert (found, errors) == (code, [])
        told = json.loads("\n".join(lines), parse_constant=pytest.fail)
        return told, {each["name"]: each for each in told["differences"]}

    return of


def test_two_starts_of_one_script_do_not_differ_though_their_times_do(
    camshaft, differences, tmp_path
):
    one, two = trained(tmp_path / "a"), trained(tmp_path / "b")
    times = [checkpoints(each).latest().manifest.time for each in (one, two)]
    assert times[0] < times[1]
    told, found = differences(one, two, code=0)
    assert (found, told["compared"], told["not_compared"]) == ({}, ["config", "checkpoint"], [])
    assert camshaft("diff", one, two)[1][-1] == "config and checkpoint: no differences"


def test_two_runs_differ_by_setting_by_clock_and_by_tensor(camshaft, differences, tmp_path):
    one, two = trained(tmp_path / "a"), trained(tmp_path / "b", lr=0.03125, epochs=3)
    _, found = differences(one, two)
    assert (found["lr"]["in"], found["lr"]["a"], found["lr"]["b"]) == (
        "config",
        "0.0625",
        "0.03125",
    )
    assert (found["epoch"]["a"], found["epoch"]["b"]) == ("2", "3")
    assert found["optimizer.param_groups.0.lr"]["b"] == "0.03125"
    states = [checkpoints(each).latest().state_dict("model") for each in (one, two)]
    a, b = (each["0.weight"].double() for each in states)
    weight, apart = found["model.0.weight"], (a - b).abs()
    assert weight["a"] == weight["b"] == "float32 [4, 3]"
    assert (weight["numbers"], weight["largest"]) == (int((a != b).sum()), float(apart.max()))
    assert weight["relative"] == float(apart.max() / max(a.abs().max(), b.abs().max()))
    code, lines, _ = camshaft("diff", one, two)
    assert code == 1
    (line,) = (line for line in lines if " model.0.weight " in line)
    assert "float32 [4, 3]  the same  12 of its numbers, by up to " in line
    assert lines[-1] == f"config and checkpoint: {len(found)} differences"


def test_a_shape_that_changed_and_an_object_that_one_alone_has_are_told(differences, tmp_path):
    one, two = trained(tmp_path / "a"), trained(tmp_path / "b", width=5)
    _, found = differences(one, two)
    weight = found["model.0.weight"]
    assert (weight["a"], weight["b"], "numbers" in weight) == (
        *("float32 [4, 3]", "float32 [5, 3]"),
        False,
    )
    first, second, *_ = checkpoints(one)
    _, found = differences(first.path, second.path)
    assert found["iteration"]["a"] == "3"
    assert "lr" not in found  # checkpoints alone have no config


SPECIAL = {
    "same nan": ([math.nan, 1.0], [math.nan, 1.0]),
    "nan": ([math.nan, 1.0], [2.0, 1.0]),
    "sign of zero": ([0.0], [-0.0]),
    "infinite": ([math.inf, 1.0], [1.0, 1.0]),
    "empty": ([], []),
}


def test_special_numbers_types_and_empty_tensors_are_compared_by_their_bits(
    camshaft, differences, tmp_path
):
    def write(place, side):
        tensors = {name: torch.tensor(pair[side]) for name, pair in SPECIAL.items()}
        tensors["complex"] = torch.tensor([1 + 1j, 2j + side])
        tensors["bool"] = torch.tensor([True, bool(side)])
        tensors["half"] = torch.ones(2, dtype=torch.float16 if side else torch.bfloat16)
        tensors["large"] = torch.tensor(2**62 + side)
        content = {name: {"!tensor": name} for name in tensors}
        objects = {"model": {"file": "model", "content": content}}
        files = {"model": tensors, "train": {}}
        snapshot = Snapshot({"state.json": {"objects": objects}}, files)
        return Directory(tmp_path / place).write(snapshot.streamed(), Manifest(iteration=1)).path

    _, found = differences(write("a", 0), write("b", 1))
    names = {name.removeprefix("model.") for name in found}
    assert names == {"nan", "sign of zero", "infinite", "complex", "bool", "half", "large"}
    assert found["model.sign of zero"]["numbers"] == 0
    assert (found["model.nan"]["largest"], found["model.infinite"]["largest"]) == ("nan", "inf")
    assert (found["model.complex"]["numbers"], found["model.complex"]["largest"]) == (1, 1.0)
    assert (found["model.half"]["a"], found["model.half"]["b"]) == ("bfloat16 [2]", "float16 [2]")
    assert found["model.large"]["numbers"] == 1
    text = "\n".join(camshaft("diff", tmp_path / "a", tmp_path / "b")[1])
    assert "the bits alone, such as the sign of 0" in text


def test_yaml_files_are_compared_with_one_another_and_with_a_run(differences, tmp_path):
    trained(tmp_path / "run")
    (tmp_path / "a.yaml").write_text("lr: 0.0625\nmodel: {width: 4}\n")
    (tmp_path / "b.yaml").write_text("lr: 0.0625\nmodel: {width: 8}\nmore: [1, 2]\n")
    told, found = differences(tmp_path / "a.yaml", tmp_path / "b.yaml")
    assert found.keys() == {"model.width", "more"}
    assert (found["more"]["a"], found["more"]["b"]) == (None, "[1, 2]")
    told, found = differences(tmp_path / "a.yaml", tmp_path / "run", code=0)
    assert told["not_compared"] == [f"checkpoint, which {tmp_path / 'a.yaml'} lacks"]


def test_what_cannot_be_compared_is_code_2(camshaft, save, tmp_path):
    save(1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.yaml").write_text("a: [")
    said = {
        "nowhere": "nowhere does not exist",
        "empty": "have nothing in common that can be compared",
        "bad.yaml": "bad.yaml: while parsing",
    }
    for name, words in said.items():
        code, lines, errors = camshaft("diff", tmp_path / "run", tmp_path / name)
        assert (code, lines, len(errors)) == (2, [], 1)
        assert words in errors[0]
    path = save(2)
    (path / "state.json").write_text("{}")
    code, _, errors = camshaft("diff", path, path)
    assert (code, len(errors)) == (2, 1)
