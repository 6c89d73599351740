"""`camshaft prove` tells scripts that resume exactly from those that do not, and why."""

import json
import sys

import pytest

from camshaft.handlers.tools.prove import prove
from camshaft.handlers.tools.prove.outcome import differences
from camshaft.handlers.tools.prove.trial import with_camshaft

SCRIPT = """
import os, random, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import CSV, Checkpoint, EarlyStopping, Journal, JSONLines, TensorBoard

torch.manual_seed(0)
pixels = torch.randn(32, 4)
data = TensorDataset(pixels, pixels.sum(1, keepdim=True))
model, target = nn.Linear(4, 1), nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
update = Update(optimizer, model=model)


def train_step(state, batch):
    loss = nn.functional.mse_loss(model(batch[0]), batch[1] + EXTRA)
    update(state, loss)
    state.metrics["loss"] = loss.detach()
    AFTER


engine = Engine(train_step, objects={"model": model, "optimizer": optimizer}).add(
    update,
    JSONLines("runs/x/rows.jsonl", when=Events.ITERATION_COMPLETED),
    CSV("runs/x/rows.csv"),
    TensorBoard("runs/x", when=Events.ITERATION_COMPLETED),
    Journal("runs/x"),
    SAVING,
)
engine.on(Events.ITERATION_COMPLETED)(lambda state: time.sleep(0.002))
engine.run(DataLoader(data, 4, shuffle=True), max_epochs=3)
"""
SAVING = 'Checkpoint("runs/x", resume=True, when=Events.ITERATION_COMPLETED(every=2))'
SOFT = "[t.data.lerp_(w.data, 0.1) for t, w in zip(target.parameters(), model.parameters())]"


def script(extra="0", after="pass", saving=SAVING):
    return SCRIPT.replace("EXTRA", extra).replace("AFTER", after).replace("SAVING", saving)


def test_a_right_script_is_proven_and_the_users_own_run_is_untouched(proof, tmp_path):
    own = tmp_path / "runs/x/iteration-0000000007"
    own.mkdir(parents=True)
    (own / "manifest.json").write_text("mine")
    (tmp_path / "runs/x/rows.jsonl").write_text("my rows")
    before = {each: each.stat().st_mtime_ns for each in tmp_path.rglob("*")}
    code, told = proof(script(), kills=3)
    assert (code, told["verdict"], told["iterations"]) == (0, "proven", 24), told
    assert len(told["kills"]) == 3
    assert any(kill["in_save"] for kill in told["kills"])
    assert any(kill["resumed_at"] for kill in told["kills"])
    assert told["differences"] == []
    after = {
        each: each.stat().st_mtime_ns for each in tmp_path.rglob("*") if each.name != "train.py"
    }
    assert after == before
    assert (tmp_path / "runs/x/rows.jsonl").read_text() == "my rows"


@pytest.mark.slow
def test_an_object_outside_of_objects_is_named(proof):
    code, told = proof(script("target(batch[0]).detach()", SOFT))
    assert (code, told["verdict"]) == (1, "differs"), told
    first = told["differences"][0]["iteration"]
    assert first > told["kills"][0]["resumed_at"]
    assert {each["kind"] for each in told["differences"]} & {"object", "metric", "row"}
    assert "target (Linear)" in told["causes"][0]


@pytest.mark.slow
def test_a_script_that_draws_from_the_wall_clock_is_nondeterministic(proof):
    code, told = proof(script("time.time() % 1"))
    assert (code, told["verdict"], told["kills"]) == (1, "nondeterministic", [])
    assert told["differences"][0]["iteration"] == 2
    assert "wall clock" in told["causes"][0]


@pytest.mark.slow
def test_a_missing_seed_is_told(proof):
    code, told = proof(script("random.random()"))
    assert (code, told["verdict"]) == (1, "nondeterministic")
    assert "random.seed(0)" in told["causes"][0]


@pytest.mark.quick(text=1)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (script("undefined"), "NameError: name 'undefined'"),
        (script(saving="CSV('b.csv')"), "no Checkpoint was seen"),
        (script(saving='Checkpoint("runs/x")'), "does not resume: write Checkpoint(..., resume"),
        (script(saving='Checkpoint("runs/x", start_over=True)'), "has start_over=True"),
        (script(after="state.interrupt('time')"), "interrupted by itself (time)"),
        (
            script(saving='Checkpoint(os.path.expanduser("~/no/such"), resume=True)'),
            "is not in the working directory",
        ),
    ],
)
def test_what_cannot_be_tried_is_told_with_what_to_do(proof, text, reason):
    code, told = proof(text)
    assert (code, told["verdict"]) == (2, "untried")
    assert reason in told["reason"]


@pytest.mark.slow
def test_kills_that_leave_no_checkpoint_prove_nothing(proof):
    text = script(after="state.stop('now')", saving='Checkpoint("runs/x", resume=True)')
    # The first random numbers of this seed kill before the first operation of the only save.
    code, told = proof(text, kills=1, seed=180)
    assert (code, told["verdict"]) == (2, "untried")
    assert "it began anew each time" in told["reason"]


HERE = 'Checkpoint(os.path.dirname(os.path.abspath(__file__)) + "/runs/x", resume=True)'
OWN = "[torch.save(model, name) for name in ('mine.pt', 'large')]; open('mine.txt', 'a').write('x')"
RIGHT = {
    "a directory beside the script": script(saving=HERE),
    "a directory of the environment": script(
        saving='Checkpoint(os.environ.get("RUNS", "runs/x"), resume=True)'
    ),
    "two": script(saving=f"{SAVING}, Checkpoint('runs/y')"),
    "one that stops early": script(saving=f'{SAVING}, EarlyStopping("loss", patience=1)'),
    "a target that is saved": script("target(batch[0]).detach()", SOFT).replace(
        '{"model": model,', '{"model": model, "target": target,'
    ),
    "workers": script().replace(
        "shuffle=True", 'shuffle=True, num_workers=2, multiprocessing_context="fork"'
    ),
}
SOME = ("a directory beside the script", "workers")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in SOME else pytest.mark.soak) for name in RIGHT],
)
def test_right_scripts_of_other_kinds_are_proven(proof, name):
    code, told = proof(RIGHT[name])
    assert (code, told["verdict"]) == (0, "proven"), told


@pytest.mark.slow
def test_files_of_the_scripts_own_are_told_and_do_not_count(proof, tmp_path):
    (tmp_path / "mine.pt").write_bytes(b"mine")
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    (tmp_path / "mine.txt").write_text("mine")
    code, told = proof(script(after=OWN))
    assert (code, told["verdict"]) == (0, "proven"), told
    assert "mine.txt" in told["other_files"]
    assert (tmp_path / "mine.pt").read_bytes() == b"mine"
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert (tmp_path / "large").read_bytes() == bytes(2 << 20)


COUNTS = script("len(seen)", "seen.append(1)").replace("update = ", "seen = []\nupdate = ")
NUMBER = script("number", "globals().update(number=number + 1)").replace(
    "update = ", "number = 0\nupdate = "
)


@pytest.mark.slow
@pytest.mark.parametrize("text", [COUNTS, NUMBER])
def test_a_list_and_a_number_that_functions_change_are_lost_by_no_kill(proof, text):
    code, told = proof(text)
    assert (code, told["verdict"]) == (0, "proven"), told


SAMPLED = """
import ctypes, random
from torch import nn
import torch
from torch.utils.data import DataLoader, TensorDataset
from camshaft import Events, supervised
from camshaft.handlers import Checkpoint


class Buckets:
    def __init__(self):
        self.bins = (ctypes.c_int64 * 6)(*range(6))  # no resume looks inside

    def __len__(self):
        return 6

    def __iter__(self):
        yield from ([2 * each, 2 * each + 1] for each in self.bins)


torch.manual_seed(0)
random.seed(0)
sampler, model = Buckets(), nn.Linear(1, 1)
engine = supervised(model, torch.optim.SGD(model.parameters(), 0.01), nn.functional.mse_loss)
engine.add(Checkpoint("run", resume=True))  # in mid-epoch, a resume refuses other batches
engine.on(Events.EPOCH_COMPLETED)(lambda state: random.shuffle(sampler.bins))
data = TensorDataset(torch.arange(12.0)[:, None], torch.ones(12, 1))
engine.run(DataLoader(data, batch_sampler=sampler), max_epochs=4)
"""


@pytest.mark.slow
def test_a_sampler_whose_order_is_lost_is_named_with_what_works(proof):
    code, told = proof(SAMPLED, kills=3)
    assert (code, told["verdict"]) == (1, "differs"), told
    assert told["causes"][0].startswith("the order of Buckets: a resume draws")
    assert "Buckets.state_dict() that gives what it had when the epoch began" in told["causes"][0]


def test_a_python_without_camshaft_is_replaced_by_the_one_that_runs(tmp_path, monkeypatch):
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert with_camshaft(["python", "train.py"]) == [sys.executable, "train.py"]
    assert with_camshaft(["python3", "-m", "train"]) == [sys.executable, "-m", "train"]
    assert with_camshaft([str(other), "train.py"]) == [str(other), "train.py"]
    assert with_camshaft(["./train.sh"]) == ["./train.sh"]
    other.write_text("#!/bin/sh\nexit 0\n")
    assert with_camshaft(["python", "train.py"]) == ["python", "train.py"]


def test_rows_are_compared_by_their_number_and_checkpoints_that_a_kill_has_left_do_not_count():
    def facts(*rows, kept):
        yield ("row", "rows.csv", ()), {"the number of rows": str(len(rows))}
        yield from ((("row", "rows.csv", (at,)), row) for at, row in enumerate(rows))
        yield ("checkpoint", "run", ()), dict.fromkeys(kept, "kept")

    one = [*facts({"iteration": "1", "x": ""}, {"iteration": "2"}, kept=["a"])]
    other = [*facts({"iteration": "1"}, {"iteration": "3"}, kept=["a", "b"])]
    assert [str(each) for each in differences(one, other)] == [
        "row rows.csv: x at iteration 1:  and missing",
        "row rows.csv: iteration at iteration 2: 2 and 3",
    ]


def test_metrics_of_the_machine_may_differ_in_checkpoints_too_and_no_others():
    def facts(value):
        times = dict.fromkeys(
            ("metrics.step_time/slowest_rank", "rank-00000.run.metrics.values.data_time"), value
        )
        yield ("checkpoint", "run", (3, "iteration-0000000003")), times
        yield ("metric", "the run", (3,)), {"epoch/seconds": value, "loss": value}
        yield ("checkpoint", "run", (4, "iteration-0000000004")), {"train.model.time": value}

    found = differences([*facts("1")], [*facts("0")])
    assert sorted(each.name for each in found) == ["loss", "train.model.time"]


SHARDED = """
import sys
import torch
from torch.distributed.fsdp import fully_shard
from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint

with ranks.process_group():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    saving = Checkpoint("run", resume=True, when=Events.ITERATION_COMPLETED(every=2))
    engine.add(saving).run([(torch.ones(2, 4), torch.ones(2, 3))] * 4, max_epochs=2)
"""


@pytest.mark.slow
def test_a_sharded_model_on_two_ranks_is_proven(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "train.py").write_text(SHARDED)
    code = prove([sys.executable, "train.py"], kills=1, ranks=2, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"]) == (0, "proven"), told
