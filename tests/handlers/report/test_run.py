"""All that a page says of a run, from rows as loggers wrote them."""

import json
import math
from pathlib import Path

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Journal, JSONLines, best, latest
from camshaft.handlers.report.page import news
from camshaft.handlers.report.rows import MetricFiles
from camshaft.handlers.report.run import Run, distinct, runs_in


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
    run = Run(tmp_path, "here")
    assert run.look()
    assert not run.look()
    facts = run.facts()
    assert facts.curves["loss"]["count"] == 9
    assert [part.end for part in facts.parts] == ["completed"]
    assert facts.limits["max_epochs"] == 3
    assert [(each["iteration"], each["kept_by"]) for each in facts.checkpoints] == [
        (3, "best"),
        (9, "latest"),
    ]
    assert {each["problem"] for each in facts.checkpoints} == {None}
    assert facts.config == {"model.width": "8"}
    assert facts.environment["python"]
    assert "Checkpoint.save" in [row[2] for row in facts.handlers]


def test_a_checkpoint_of_another_size_is_broken(tmp_path):
    train(tmp_path)
    newest = sorted(tmp_path.glob("iteration-*"))[-1]
    (newest / "state.json").write_text("")
    assert "has 0 bytes" in Run(tmp_path, "here").facts().checkpoints[-1]["problem"]


def test_a_directory_that_is_not_there_is_empty_and_seen_when_it_comes(tmp_path):
    run = Run(tmp_path / "later", "later")
    run.look()
    assert not run.facts().is_begun
    assert not run.look()
    train(tmp_path / "later")
    assert run.look()
    assert run.facts().is_begun


def test_a_curve_is_made_anew_only_when_its_metric_has_grown(write):
    run = Run(write({"iteration": 1, "a": 1, "b": 1}), "x")
    run.look()
    before = run.facts().curves
    write({"iteration": 2, "a": 2})
    run.look()
    after = run.facts().curves
    assert after["b"] is before["b"]
    assert after["a"]["y"] == [1, 2]


def test_hostile_journals_are_no_error(write):
    run = write({"event": "started", "config": 3, "limits": [], "environment": None, "handlers": 7})
    line = {"event": "started", "epoch": "x", "part": 2, "limits": {"max_epochs": "y"}}
    write({**line, "config": {"a": float("inf"), "b": [1]}, "handlers": [[1]]})
    (run / "journal.jsonl").write_text((run / "rows.jsonl").read_text())
    facts = Run(run, "x").facts()
    assert (facts.config, facts.handlers) == ({"a": "inf", "b": "[1]"}, [])
    assert "2 parts" in news(runs_in([run]))["sections"]["head"]


def test_the_pace_is_a_curve_by_itself(tmp_path):
    lines = [{"event": "started", "time": 10 * each, "iteration": each} for each in range(3)]
    (tmp_path / "journal.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    assert Run(tmp_path, "x").facts().curves["iterations per second"]["y"] == [0.1, 0.1]


def test_runs_are_named_by_the_shortest_ends_of_their_paths_that_differ(tmp_path):
    assert distinct([Path("/home/me/runs/a")]) == ["a"]
    assert distinct([Path("/x/runs/a"), Path("/x/runs/b")]) == ["a", "b"]
    assert distinct([Path("/x/1/run"), Path("/x/2/run")]) == ["1/run", "2/run"]
    assert distinct([Path("/x/a"), Path("/x/a")]) == ["a", "a"]


def test_the_charts_of_several_runs_are_those_of_all_their_metrics(write, tmp_path):
    (tmp_path / "other").mkdir()
    one = write({"iteration": 1, "loss": 1})
    (tmp_path / "other" / "rows.jsonl").write_text('{"iteration": 1, "val/loss": 2}\n')
    runs = runs_in([one, tmp_path / "other"])
    assert [run.look() for run in runs] == [True, True]
    assert [(run.name, *run.facts().curves) for run in runs] == [
        ("run", "loss"),
        ("other", "val/loss"),
    ]
    traces = news(runs)["figures"]["curve loss"]["data"]
    assert [trace["name"] for trace in traces] == ["run: loss", "other: val/loss"]


def row(iteration, **metrics):
    return {"iteration": iteration, "step": iteration, "epoch": 1, **metrics}


def test_what_json_lines_wrote_is_read_back(tmp_path):
    def step(state, batch):
        state.metrics["loss"] = batch

    engine = Engine(step, JSONLines(tmp_path / "rows.jsonl", when=Events.ITERATION_COMPLETED))
    engine.run([0.5, math.nan, math.inf, -math.inf, 2], max_epochs=1)
    rows = MetricFiles(tmp_path)
    assert rows.look()
    series = rows.series["loss"]
    assert (series.iterations, series.epochs) == ([1, 2, 3, 4, 5], [1] * 5)
    assert repr(series.values) == "[0.5, nan, inf, -inf, 2.0]"
    assert list(rows.series) == ["loss"]


def test_each_look_reads_what_is_new(write):
    rows = MetricFiles(write(row(1, loss=1)))
    assert rows.look()
    assert not rows.look()
    write(row(2, loss=0.5), row(2, **{"val/loss": 3}))
    assert rows.look()
    assert rows.series["loss"].values == [1.0, 0.5]
    assert rows.series["val/loss"].values == [3.0]


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(write):
    run = write(row(1, loss=1))
    rows = MetricFiles(run)
    with (run / "rows.jsonl").open("a") as file:
        file.write('{"iteration": 2, "lo')
        file.flush()
        rows.look()
        assert rows.series["loss"].values == [1.0]
        file.write('ss": 7}\n')
    rows.look()
    assert rows.series["loss"].values == [1.0, 7.0]


def test_a_file_that_was_cut_by_a_resume_is_read_anew(write):
    run = write(row(1, loss=1), row(2, loss=2), row(3, loss=3))
    rows = MetricFiles(run)
    rows.look()
    draft = run / "rows.jsonl.tmp"
    draft.write_text((run / "rows.jsonl").read_text().splitlines(keepends=True)[0])
    draft.replace(run / "rows.jsonl")
    write(row(2, loss=5), row(3, loss=6), row(4, loss=7))
    assert rows.look()
    assert rows.series["loss"].values == [1.0, 5.0, 6.0, 7.0]


def test_what_is_no_row_or_no_number_is_left_out(write):
    run = write([1], {"loss": 1}, row("x", loss=1), row(None, loss=2), row(1, a=True, b="text"))
    clocks = {"time": 3.5, "GanEvents.CRITIC_UPDATED": 7}
    write(
        row(2, a=[1], b=None, c=10**400, d=1, **clocks),
        "NaN",
        {"iteration": 3, "epoch": [], "d": 2},
    )
    with (run / "rows.jsonl").open("ab") as file:
        file.write(b"\xff\n{}\n" + b"[" * 100_000 + b"\n")
    rows = MetricFiles(run)
    assert rows.look()
    assert {name: series.values for name, series in rows.series.items()} == {"d": [1.0]}


def test_several_files_are_read_and_the_journal_is_none_of_them(write):
    run = write(row(1, loss=1))
    write(row(1, loss=9, other=2), name="z.jsonl")
    write(row(1, event=3), name="journal.jsonl")
    write(row(1, old=3), name="rows.jsonl.1")
    rows = MetricFiles(run)
    rows.look()
    assert {name: each.values for name, each in rows.series.items()} == {"loss": [1], "other": [2]}


def test_a_directory_that_is_not_there_yet_is_empty(tmp_path):
    rows = MetricFiles(tmp_path / "later")
    assert not rows.look()
    assert rows.series == {}
