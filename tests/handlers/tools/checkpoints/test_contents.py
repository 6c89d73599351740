"""`camshaft inspect` of one checkpoint: its objects, files, versions and where it stands."""

import json
import os
from dataclasses import replace
from datetime import datetime

import pytest
import torch

from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, EarlyStopping, Export, best, checkpoints, latest
from camshaft.handlers.checkpoint.directory import Directory
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.save import Snapshot


@pytest.fixture
def path(tmp_path):
    model = torch.nn.Linear(3, 2).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    when = Events.ITERATION_COMPLETED(at=5)
    engine.add(EarlyStopping("loss"), Checkpoint(tmp_path, when=when, keep=latest(3)))
    batch = (torch.ones(4, 3, dtype=torch.bfloat16), torch.ones(4, 2, dtype=torch.bfloat16))
    engine.run([batch] * 3, max_epochs=2)
    return tmp_path / "iteration-0000000005"


def test_it_says_where_the_run_stands_and_what_is_saved_of_it(path, camshaft):
    code, lines, errors = camshaft("inspect", path)
    assert (code, errors, lines[0]) == (0, [], str(path))
    facts = dict(line.split("  ", 1) for line in lines[1 : lines.index("")])
    facts = {name: text.strip() for name, text in facts.items()}
    assert facts["position"] == "1 epoch, 5 iterations, 5 steps; 2 iterations into epoch 2"
    assert facts["why"] == "Events.ITERATION_COMPLETED(at=(5,))"
    assert facts["kept by"] == "latest(3)"
    assert "EarlyStopping(loss)" in facts["memory"]
    assert f"torch {torch.__version__}" in facts["versions"]


def test_its_time_is_that_of_the_save_and_stays_when_its_files_are_copied(path, camshaft):
    time = checkpoints(path.parent)[-1].manifest.time
    for each in path.parent.rglob("*"):
        os.utime(each, (0, 0))
    (only,) = json.loads("\n".join(camshaft("inspect", path, "--json")[1]))
    written = datetime.fromisoformat(only["written"])
    assert written.tzinfo is not None
    assert written.timestamp() == time > 1.7e9
    local = datetime.fromtimestamp(time).isoformat(" ", "minutes")
    assert local in "\n".join(camshaft("inspect", path)[1])
    assert local in "\n".join(camshaft("inspect", path.parent)[1])


def test_one_of_an_earlier_version_was_written_when_its_directory_was(path, camshaft):
    manifest = path / "manifest.json"
    earlier = replace(checkpoints(path.parent)[-1].manifest, time=0.0)
    manifest.write_text(earlier.to_json())
    os.utime(path, (1_700_000_000, 1_700_000_000))
    (only,) = json.loads("\n".join(camshaft("inspect", path, "--json")[1]))
    assert datetime.fromisoformat(only["written"]).timestamp() == 1_700_000_000


def test_it_counts_the_tensors_of_each_object(path, camshaft):
    lines = camshaft("inspect", path)[1]
    rows = {line.split()[0]: line.split()[1:] for line in lines if "safetensors" in line}
    assert rows["model"] == ["2", "8", "16", "bfloat16", "model.safetensors"]
    assert rows["optimizer"] == ["2", "8", "16", "bfloat16", "train.safetensors"]
    size = (path / "model.safetensors").stat().st_size
    assert rows["model.safetensors"] == [f"{size:,}"]


def test_what_no_run_writes_is_told_in_one_line(tmp_path, camshaft):
    entry = {"file": "model", "content": {"weight": {"!tensor": "weight"}}}
    snapshot = Snapshot({"state.json": {"objects": {"model": entry}}}, {})
    saved = Directory(tmp_path).write(snapshot.streamed(), Manifest())
    code, lines, errors = camshaft("inspect", saved.path)
    assert (code, lines, len(errors)) == (1, [], 1)
    assert "state.json" in errors[0]
    assert "KeyError" in errors[0]


def test_an_export_is_shown_as_what_holds_no_run(camshaft, tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: state.metrics.update(score=float(state.iteration))
    )
    engine.add(Export(tmp_path / "best", keep=best(1, "score")))
    engine.run([(torch.ones(4, 3), torch.ones(4, 2))], max_epochs=2)
    path = tmp_path / "best" / "iteration-0000000001"
    code, lines, errors = camshaft("inspect", path)
    assert (code, errors, lines[0]) == (0, [], str(path))
    facts = dict(line.split("  ", 1) for line in lines[1 : lines.index("")])
    facts = {name: text.strip() for name, text in facts.items()}
    assert facts["position"] == "1 epoch, 1 iteration, 1 step"
    assert facts["holds"] == "exported objects alone; no run can resume from them"
    assert facts["kept by"] == "best(1, 'score', mode='min')"
    assert not {"stopped", "memory"} & facts.keys()
    rows = {line.split()[0]: line.split()[1:] for line in lines if "safetensors" in line}
    assert rows["model"] == ["2", "8", "32", "float32", "model.safetensors"]
    code, lines, _ = camshaft("inspect", tmp_path / "best")
    assert (code, len(lines)) == (0, 3)
    assert " best " in lines[2]
    for each in (path, tmp_path / "best"):
        assert camshaft("verify", each)[0] == 0
    assert camshaft("export", tmp_path / "best", tmp_path / "model.pt", "--object", "model")[0] == 0
    assert torch.load(tmp_path / "model.pt", weights_only=True).keys() == {"weight", "bias"}
