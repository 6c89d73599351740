"""`camshaft prune`: what nothing claims goes, and what is good and newest never does."""

import pytest
import torch
from torch import nn

from camshaft import supervised
from camshaft.handlers import Checkpoint, checkpoints, latest
from camshaft.handlers.checkpoint.directory import verify_files
from camshaft.handlers.files import locked


def names(directory):
    return sorted(path.name[-2:] for path in directory.glob("iteration-*"))


def test_what_no_claim_claims_is_dropped(save, camshaft, tmp_path):
    for iteration, loss in enumerate([0.9, 0.1, 0.5, 0.7], 1):
        save(iteration, loss)
    code, lines, errors = camshaft("prune", tmp_path / "run", "--keep", "best(1, 'loss')")
    assert (code, errors, names(tmp_path / "run")) == (0, [], ["02", "04"])
    assert lines[:-1] == [
        "iteration-0000000001  dropped",
        "iteration-0000000002  kept by best(1, 'loss', mode='min')",
        "iteration-0000000003  dropped",
        "iteration-0000000004  kept, being the newest good one",
    ]
    assert lines[-1].startswith("2 dropped, ")


@pytest.mark.parametrize("seen_at_once", [True, False])
def test_a_broken_one_stands_for_nothing_and_is_left_alone(save, camshaft, tmp_path, seen_at_once):
    for iteration, loss in enumerate([0.5, 0.2, 0.9], 1):
        path = save(iteration, loss)
    best = tmp_path / "run" / "iteration-0000000002"
    for broken in (best, path):
        content = b"" if seen_at_once else b"x" * (broken / "state.json").stat().st_size
        (broken / "state.json").write_bytes(content)
    code, lines, _ = camshaft("prune", tmp_path / "run", "--keep", "best(1, 'loss')")
    assert (code, names(tmp_path / "run")) == (0, ["01", "02", "03"])
    assert sum("broken and left alone: state.json" in line for line in lines) == 2
    assert "iteration-0000000001  kept by best(1, 'loss', mode='min')" in lines


def test_where_none_is_good_none_is_dropped(save, camshaft, tmp_path):
    for iteration in (1, 2):
        (save(iteration) / "state.json").unlink()
    code, _, errors = camshaft("prune", tmp_path / "run", "--keep", "latest()")
    assert (code, names(tmp_path / "run")) == (1, ["01", "02"])
    assert errors == [f"camshaft: no checkpoint in {tmp_path / 'run'} is good, so none is dropped"]


def test_files_that_are_not_ours_stay(save, camshaft, tmp_path):
    save(1), save(2)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    (tmp_path / "run" / "iteration-0000000009.bak").mkdir()
    assert camshaft("prune", tmp_path / "run", "--keep", "latest()")[0] == 0
    left = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert left == ["LATEST", "iteration-0000000002", "iteration-0000000009.bak", "notes.txt"]


def test_a_checkpoint_with_files_of_somebody_else_stays(save, camshaft, tmp_path):
    first = save(1)
    save(2)
    (first / "model.pt").touch()
    code, lines, _ = camshaft("prune", tmp_path / "run", "--keep", "latest()")
    assert (code, names(tmp_path / "run")) == (0, ["01", "02"])
    assert lines[0] == "iteration-0000000001  stays"
    assert lines[2] == "0 dropped, 0 B"


def test_while_a_run_writes_there_nothing_is_dropped(save, camshaft, tmp_path):
    save(1), save(2)
    with locked(tmp_path / "run"):
        code, _, errors = camshaft("prune", tmp_path / "run", "--keep", "latest()")
    assert (code, names(tmp_path / "run"), len(errors)) == (1, ["01", "02"], 1)
    assert "writes to" in errors[0]


def test_a_dry_run_looks_on_while_a_run_writes_there(save, camshaft, tmp_path):
    save(1), save(2)
    with locked(tmp_path / "run"):
        code, lines, _ = camshaft("prune", tmp_path / "run", "--keep", "latest()", "--dry-run")
    assert (code, lines[0]) == (0, "iteration-0000000001  would be dropped")


def test_a_claim_by_a_metric_that_none_has_drops_nothing_and_lists_those_there_are(
    save, camshaft, tmp_path
):
    paths = [save(iteration, loss=1 / iteration) for iteration in (1, 2, 3)]
    code, _, errors = camshaft("prune", tmp_path / "run", "--keep", "best(1, 'val/err')")
    assert code == 1
    assert "has the metric 'val/err'; they have: 'loss'" in errors[0]
    assert all(path.exists() for path in paths)


def train(directory, **options):
    torch.manual_seed(0)
    model = nn.Linear(50, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(Checkpoint(directory, keep=latest(9), **options))
    data = [(torch.ones(2, 50), torch.ones(2, 1))]
    return engine.run(data, max_epochs=3 if not options else 4)


def test_what_no_claim_claims_can_be_stripped_to_the_weights(camshaft, tmp_path):
    train(tmp_path)
    before = checkpoints(tmp_path)
    weights = [saved.state_dict("model")["weight"] for saved in before]
    arguments = ("prune", tmp_path, "--keep", "latest()", "--strip")
    code, lines, _ = camshaft(*arguments, "--dry-run")
    assert (code, lines[0]) == (0, "iteration-0000000001  would be stripped to weights")
    assert [saved.manifest.size for saved in checkpoints(tmp_path)] == [
        saved.manifest.size for saved in before
    ]
    code, lines, errors = camshaft(*arguments)
    assert (code, errors) == (0, [])
    assert lines[1] == "iteration-0000000002  stripped to weights"
    assert lines[-1].startswith("2 stripped to weights, ")
    after = checkpoints(tmp_path)
    assert [each.path for each in after] == [each.path for each in before]
    assert [each.manifest.number for each in after] == [1, 2, 3]
    assert [each.manifest.reason for each in after] == [each.manifest.reason for each in before]
    for saved, weight in zip(after, weights, strict=True):
        verify_files(saved)
        assert torch.equal(saved.state_dict("model")["weight"], weight)
    assert {*after[0].manifest.files} == {"model.safetensors", "state.json"}
    assert camshaft(*arguments)[1][-1] == "0 stripped to weights, 0 B"
    assert train(tmp_path, resume=True).epoch == 4  # from the newest, which is whole
    with pytest.raises(ValueError, match="it holds exported weights alone"):
        train(tmp_path, resume=after[0].path)
