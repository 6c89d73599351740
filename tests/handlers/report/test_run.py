"""All that a page says of a run."""

import json
from pathlib import Path

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Journal, JSONLines, best, latest
from camshaft.handlers.report.page import news
from camshaft.handlers.report.run import Run, Runs, distinct


def train(directory, config=None):
    def step(state, batch):
        state.metrics["loss"] = 1 / state.iteration

    engine = Engine(step).add(
        Checkpoint(directory, keep=latest(1) | best(1, "loss", mode="max"), resume=True),
        Journal(directory, config=config),
        JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED),
    )
    engine.run([1, 2, 3], max_epochs=3)


def test_it_holds_rows_parts_checkpoints_configuration_environment_and_handlers(tmp_path):
    train(tmp_path, {"model": {"width": 8}})
    run = Run(tmp_path)
    assert run.look()
    assert not run.look()
    facts = run.facts("here")
    json.dumps(facts, allow_nan=False)
    assert facts["curves"]["loss"]["count"] == 9
    assert [part["end"] for part in facts["parts"]] == ["completed"]
    assert facts["progress"]["end"] == "completed"
    assert facts["progress"]["max_epochs"] == 3
    assert [(each["iteration"], each["kept_by"]) for each in facts["checkpoints"]] == [
        (3, "best"),
        (9, "latest"),
    ]
    assert {each["problem"] for each in facts["checkpoints"]} == {None}
    assert facts["config"] == {"model.width": 8}
    assert facts["environment"]["python"]
    assert "Checkpoint.save" in [row[2] for row in facts["handlers"]]


def test_a_checkpoint_of_another_size_is_broken(tmp_path):
    train(tmp_path)
    newest = sorted(tmp_path.glob("iteration-*"))[-1]
    (newest / "state.json").write_text("")
    facts = Run(tmp_path).facts("here")
    assert "has 0 bytes" in facts["checkpoints"][-1]["problem"]


def test_a_directory_that_is_not_there_is_empty_and_seen_when_it_comes(tmp_path):
    run = Run(tmp_path / "later")
    run.look()
    assert run.is_empty
    assert run.facts("later")["parts"] == []
    assert not run.look()
    train(tmp_path / "later")
    assert run.look()
    assert not run.is_empty


def test_a_curve_is_made_anew_only_when_its_metric_has_grown(write):
    run = Run(write({"iteration": 1, "a": 1, "b": 1}))
    run.look()
    before = run.facts("x")["curves"]
    write({"iteration": 2, "a": 2})
    run.look()
    after = run.facts("x")["curves"]
    assert after["b"] is before["b"]
    assert after["a"]["y"] == [1, 2]


def test_hostile_journals_are_no_error(write):
    run = write({"event": "started", "config": 3, "limits": [], "environment": None, "handlers": 7})
    write({"event": "started", "config": {"a": float("inf")}, "handlers": [[1]]}, name="j")
    (run / "journal.jsonl").write_text((run / "rows.jsonl").read_text())
    facts = Run(run).facts("x")
    json.dumps(facts, allow_nan=False)
    assert facts["handlers"] == []


def test_runs_are_named_by_the_shortest_ends_of_their_paths_that_differ(tmp_path):
    assert distinct([Path("/home/me/runs/a")]) == ["a"]
    assert distinct([Path("/x/runs/a"), Path("/x/runs/b")]) == ["a", "b"]
    assert distinct([Path("/x/1/run"), Path("/x/2/run")]) == ["1/run", "2/run"]
    assert distinct([Path("/x/a"), Path("/x/a")]) == ["a", "a"]


def test_the_charts_of_several_runs_are_those_of_all_their_metrics(write, tmp_path):
    (tmp_path / "other").mkdir()
    one = write({"iteration": 1, "loss": 1})
    (tmp_path / "other" / "rows.jsonl").write_text('{"iteration": 1, "val/loss": 2}\n')
    runs = Runs([one, tmp_path / "other"])
    runs.look()
    assert [list(run["curves"]) for run in runs.facts()] == [["loss"], ["val/loss"]]
    assert [run["name"] for run in runs.facts()] == ["run", "other"]
    traces = news(runs)["figures"]["curve loss"]["data"]
    assert [trace["name"] for trace in traces] == ["run: loss", "other: val/loss"]
