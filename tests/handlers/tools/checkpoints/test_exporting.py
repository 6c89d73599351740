"""`camshaft export`: one file that plain torch reads."""

import pytest
import torch

from camshaft import supervised
from camshaft.handlers import Checkpoint, latest


@pytest.fixture
def run(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(Checkpoint(tmp_path / "run", keep=latest(9)))
    engine.run([(torch.ones(4, 3), torch.ones(4, 2))], max_epochs=3)
    return tmp_path / "run", model


def test_the_newest_of_a_directory_is_exported(run, camshaft, tmp_path):
    directory, model = run
    code, lines, errors = camshaft("export", directory, tmp_path / "run.pt")
    assert (code, errors) == (0, [])
    assert lines[0].startswith(str(tmp_path / "run.pt"))
    assert lines[0].endswith(f"from {directory / 'iteration-0000000003'}")
    content = torch.load(tmp_path / "run.pt", weights_only=True)
    assert content["iteration"] == 3
    assert torch.equal(content["model"]["weight"], model.weight)


def test_one_object_of_one_checkpoint_is_exported(run, camshaft, tmp_path):
    directory, model = run
    path = directory / "iteration-0000000001"
    assert camshaft("export", path, tmp_path / "model.pt", "--object", "model")[0] == 0
    first = torch.load(tmp_path / "model.pt", weights_only=True)
    model.load_state_dict(first)
    assert camshaft("export", directory, tmp_path / "model.pt", "--object", "model")[0] == 0
    newest = torch.load(tmp_path / "model.pt", weights_only=True)
    assert not torch.equal(first["weight"], newest["weight"])


def test_what_cannot_be_exported_is_told_in_one_line(run, camshaft, tmp_path):
    directory, _ = run
    code, _, errors = camshaft("export", directory, tmp_path / "x.pt", "--object", "modle")
    assert (code, len(errors)) == (1, 1)
    assert "no object 'modle'; its objects are: 'model', 'optimizer'" in errors[0]
    for path in directory.glob("iteration-*"):
        (path / "model.safetensors").unlink()
    code, _, errors = camshaft("export", directory, tmp_path / "x.pt")
    assert (code, len(errors)) == (1, 1)
    assert "is good" in errors[0]
    assert camshaft("export", tmp_path / "nowhere", tmp_path / "x.pt")[0] == 2
    assert not (tmp_path / "x.pt").exists()


@pytest.mark.parametrize("name", ["x.onnx", "x", "x.pth", "x.PT", "x.pt.gz"])
def test_a_name_of_another_format_is_refused_before_anything_is_read(run, camshaft, tmp_path, name):
    for path in run[0].glob("iteration-*"):
        (path / "model.safetensors").unlink()
    code, lines, errors = camshaft("export", run[0] / "iteration-0000000003", tmp_path / name)
    assert (code, lines) == (1, [])
    assert errors[0].startswith(
        f"camshaft: cannot export to {tmp_path / name}: write a name that ends with .pt, for "
        "torch.load, or with .safetensors"
    )
    assert not (tmp_path / name).exists()
