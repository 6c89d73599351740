"""`camshaft replay` computes an iteration of a run again, bit for bit, and leaves the run alone."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from camshaft.__main__ import main
from camshaft.handlers.checkpoint import Manifest


def rows_in(file):
    return {row["iteration"]: row for row in map(json.loads, file.read_text().splitlines())}


def contents(root):
    files = [each for each in root.rglob("*") if each.is_file()]
    return {each: (each.read_bytes(), each.stat().st_mtime_ns) for each in files}


def test_an_iteration_has_the_bits_of_the_run_and_the_run_stays_as_it_is(run, replayed, tmp_path):
    before, prints = contents(tmp_path), rows_in(run / "prints.jsonl")
    for iteration, start in ((11, 10), (20, 10), (36, 35)):
        code, told = replayed(iteration)
        assert (code, told["verdict"], told["notes"]) == (0, "same", []), told
        assert told["from"] == f"runs/x/iteration-00000000{start}"
        assert told["compared"] == {"runs/x/prints.jsonl": [], "runs/x/rows.jsonl": []}
        own = prints[iteration]
        assert told["fingerprints"] == {kind: own[kind] for kind in told["fingerprints"]}
        assert len(told["fingerprints"]) == 5
    assert contents(tmp_path) == before


def test_what_another_script_computes_differs_and_is_named(run, replayed):
    code, told = replayed(22, 1.5)
    assert (code, told["verdict"]) == (1, "differs")
    assert told["compared"]["runs/x/rows.jsonl"][0].startswith("loss was ")
    names = [text.partition(" was ")[0] for text in told["compared"]["runs/x/prints.jsonl"]]
    assert {"loss.loss", "gradients.0.weight"} < {*names}
    assert "batch.0" not in names


@pytest.mark.slow
def test_fingerprints_that_the_script_no_longer_writes_are_compared_too(run, script, replayed):
    script(extra="pass")
    code, told = replayed(22)
    assert (code, list(told["compared"])) == (0, ["runs/x/prints.jsonl", "runs/x/rows.jsonl"])


def test_what_modules_return_is_kept_by_their_names(run, replayed, tmp_path):
    code, told = replayed(22, keep=["0", "model.[12]"])
    assert (code, told["kept"]) == (0, ["replay-22.safetensors"])
    kept = load_file(tmp_path / "replay-22.safetensors")
    assert kept.keys() == {"model.0", "model.1", "model.2"}
    assert kept["model.0"].sum().item() == rows_in(run / "rows.jsonl")[22]["hidden"]


@pytest.mark.slow
def test_a_run_behind_a_link_is_copied_too(run, replayed, tmp_path):
    (tmp_path / "runs").rename(tmp_path / "far")
    (tmp_path / "runs").symlink_to("far")
    before = contents(tmp_path / "far")
    assert replayed(22)[0] == 0
    assert contents(tmp_path / "far") == before


@pytest.mark.quick(why=4)
@pytest.mark.parametrize(
    ("iteration", "settings", "options", "why"),
    [
        (3, {}, {}, "no checkpoint of .* before iteration 3; those of the run are: 10, 20"),
        (40, {}, {}, "ends after iteration 36, so 40 never comes"),
        (22, {"resume": "False"}, {}, "the script fails.*pass resume=True"),
        (22, {}, {"pdb": True, "ranks": 2}, "stops one process"),
        (22, {"resume": "False, start_over=True"}, {}, "begins at iteration 0"),
        (22, {"extra": "1 / 0"}, {}, "exit code 1; its last lines.*ZeroDivisionError"),
        (22, {}, {"keep": ["1.weights"]}, "no module has this name; some are model, model.0"),
    ],
    ids=range(7),
)
def test_what_cannot_be_computed_again_says_why(
    run, script, replayed, iteration, settings, options, why
):
    script(**settings)
    code, told = replayed(iteration, **options)
    assert code == 2
    assert re.search(why, told["reason"], re.DOTALL), told["reason"]


def test_a_script_that_ignores_the_directory_is_told_so(run, replayed, tmp_path, monkeypatch):
    os.rename("runs/x", "runs/y")
    code, told = replayed(22, path="runs/y")
    assert (code, told["reason"][:29]) == (2, "the script has no Checkpoint(")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    code, told = replayed(22, path="../runs/y")
    assert code == 2
    assert "is not in the working directory" in told["reason"]


@pytest.mark.slow
def test_other_versions_ranks_and_machines_are_told_of(run, replayed):
    place = run / "iteration-0000000020"
    manifest = Manifest.of_json((place / "manifest.json").read_bytes())
    other = replace(manifest, versions=manifest.versions | {"torch": "1.0"}, world_size=2)
    (place / "manifest.json").write_text(other.to_json())
    journal = (run / "journal.jsonl").read_text()
    (run / "journal.jsonl").write_text(re.sub(r'"host": "[^"]*"', '"host": "n17"', journal))
    (run / "LOCK").write_text('{"process": 7, "host": "n17", "since": "yesterday"}')
    code, told = replayed(22)
    locked, doubts = told["notes"]
    assert code == 0
    assert locked.startswith("process 7 on n17 has locked runs/x since yesterday")
    assert re.search(
        r"torch is .* and was 1.0; ranks is 1 and was 2; host is .* and was n17", doubts
    )
    assert "not promised" in doubts
    (run / "journal.jsonl").unlink()
    assert "has no Journal" in replayed(22)[1]["notes"][2]


@pytest.mark.slow
def test_a_tracker_hears_nothing_of_a_replay(run, script, replayed, processes, tmp_path_factory):
    place = tmp_path_factory.mktemp("elsewhere") / "mlflow.db"
    own = f'engine.add(MLflow("x", uri="sqlite:///{place}", when=Events.ITERATION_COMPLETED))'
    script(extra=f"from camshaft.handlers import MLflow; {own}")
    shutil.rmtree(run)
    processes.run(Path("train.py"), cwd=Path.cwd())
    before = place.read_bytes()
    assert replayed(22)[0] == 0
    assert place.read_bytes() == before


@pytest.mark.slow
def test_a_debugger_stops_before_the_iteration(run):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "camshaft", "replay", "runs/x", "--iteration", "22", "--pdb"]
    ended = subprocess.run(
        [*command, "--", sys.executable, "train.py"],
        input="p 'in', state.iteration, state.step\np len(batch)\nc\n",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "('in', 22, 21)" in ended.stdout
    assert (ended.returncode, ended.stdout.splitlines()[-1][:8]) == (0, "the same")


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["q\n", ""], ids=["q", "end"])
def test_a_debugger_that_is_left_has_computed_nothing(run, typed):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "camshaft", "replay", "runs/x", "--iteration", "22", "--pdb"]
    ended = subprocess.run(
        [*command, "--", sys.executable, "train.py"],
        **{"input": typed, "env": environment, "capture_output": True, "text": True},
    )
    assert ended.returncode == 2
    assert "not computed: " in ended.stdout
    assert "--pdb was left before the iteration was computed" in ended.stdout


RANKED = """
import ignite.distributed as idist
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
from camshaft import Events, loader, supervised
from camshaft.handlers import Checkpoint, Fingerprints, JSONLines, every

idist.initialize("gloo")
torch.manual_seed(0)
x = torch.randn(48, 4)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1)))
engine = supervised(model, torch.optim.Adam(model.parameters(), 0.01), nn.functional.mse_loss)
engine.add(
    Checkpoint("runs/x", when=Events.ITERATION_COMPLETED(every=5), keep=every(5), resume=True),
    JSONLines("runs/x/rows.jsonl", when=Events.ITERATION_COMPLETED),
    Fingerprints("runs/x/prints.jsonl"),
)
engine.run(loader(TensorDataset(x, x.sum(1, keepdim=True)), 8, training=True), max_epochs=3)
idist.finalize()
"""


@pytest.mark.slow
def test_on_two_ranks_each_rank_computes_its_part_again(processes, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(RANKED)
    processes.torchrun(tmp_path / "train.py", cwd=tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    before = contents(tmp_path / "runs")
    given = ["--iteration", "14", "--ranks", "2", "--keep", "0", "--json"]
    code = main(["replay", "runs/x", *given, "--", sys.executable, "train.py"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"]) == (0, "same"), told
    assert told["compared"] == {"runs/x/prints.jsonl": [], "runs/x/rows.jsonl": []}
    assert "rank 1: 0" in told["fingerprints"]["batch"]
    one, two = (load_file(tmp_path / each)["model.0"] for each in told["kept"])
    assert not one.equal(two)
    assert contents(tmp_path / "runs") == before
    code = main(["replay", "runs/x", "--iteration", "14", "--json", "--", "python", "train.py"])
    told = json.loads(capsys.readouterr().out)
    assert code != 0
    assert "ranks is 1 and was 2" in str(told)
