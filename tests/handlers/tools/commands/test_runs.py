"""`camshaft runs`: a line for each run below a directory."""

import json
from datetime import datetime

import pytest

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Journal, JSONLines

LOSSES = [3.0, 1.0, 2.0]


def run_in(directory, losses=LOSSES, *handlers, stop=None):
    engine = Engine(lambda state, loss: loss)
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: state.metrics.update({"val/loss": state.output})
    )
    rows = JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED)
    engine.add(rows, Journal(directory), *handlers)
    if stop is not None:
        engine.on(Events.ITERATION_COMPLETED(at=stop))(lambda state: state.interrupt("enough"))
    engine.run(losses, max_epochs=1)
    return directory


def test_each_run_is_a_line_with_its_status_its_place_its_best_value_and_its_last_write(
    camshaft, tmp_path
):
    before = datetime.now().replace(second=0, microsecond=0)
    run_in(tmp_path / "a")
    run_in(tmp_path / "sweep/lr=0.1", [2.5, 0.5], stop=1)
    code, lines, errors = camshaft("runs", tmp_path)
    assert (code, errors, len(lines)) == (0, [], 3)
    head, first, second = ([*filter(None, map(str.strip, line.split("  ")))] for line in lines)
    assert head == ["run", "status", "iteration", "step", "best", "written"]
    assert first[:5] == ["a", "finished", "3", "0", "val/loss=1, lowest"]
    assert second[:3] == ["sweep/lr=0.1", "interrupted, to go on", "1"]
    assert datetime.fromisoformat(first[5]) >= before


def test_programs_get_json_with_the_time_zone(camshaft, tmp_path):
    run_in(tmp_path / "a", [1.0, float("nan"), float("inf")])
    code, lines, _ = camshaft("runs", tmp_path / "a", "--json")
    (row,) = json.loads("\n".join(lines), parse_constant=pytest.fail)
    assert code == 0
    assert row["path"] == row["run"] == str(tmp_path / "a")
    assert row["best"] == {"metric": "val/loss", "which": "lowest", "value": 1.0}
    assert datetime.fromisoformat(row["written"]).tzinfo is not None


def test_what_lies_inside_a_run_is_no_run_and_checkpoints_alone_are_one(camshaft, save, tmp_path):
    save(7, 0.5)  # to tmp_path/run
    run_in(tmp_path / "other", LOSSES, Checkpoint(tmp_path / "other"))
    (tmp_path / "other" / "inner").mkdir()
    (tmp_path / "other" / "inner" / "rows.jsonl").write_text('{"iteration": 1, "loss": 1}\n')
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "rows.jsonl").write_text('{"iteration": 1, "loss": 1}\n')
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "texts.jsonl").write_text('{"text": "no row"}\n')
    found = json.loads("\n".join(camshaft("runs", tmp_path, "--json")[1]))
    assert [each["run"] for each in found] == ["other", "run"]
    assert found[1]["status"] == "no journal"
    assert found[1]["iteration"] == 7


def test_a_data_set_in_a_directory_does_not_hide_the_runs_below_it(camshaft, tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "no row"}\n')
    run_in(tmp_path / "runs" / "a")
    found = json.loads("\n".join(camshaft("runs", tmp_path, "--json")[1]))
    assert [each["run"] for each in found] == ["runs/a"]


def test_where_there_is_no_run_the_code_is_2(camshaft, tmp_path):
    lacks = ": no run; one has a journal, rows or checkpoints"
    for path, said in ((tmp_path, lacks), (tmp_path / "nowhere", " is no directory")):
        code, lines, errors = camshaft("runs", path)
        assert (code, lines) == (2, [])
        assert errors == [f"camshaft: {path}{said}"]


def test_a_damaged_run_does_not_hide_the_others(camshaft, tmp_path):
    run_in(tmp_path / "a")
    (tmp_path / "b" / "iteration-0000000001").mkdir(parents=True)
    (tmp_path / "b" / "rows.jsonl").symlink_to("nowhere")
    (tmp_path / "b" / "journal.jsonl").write_text('{"event": "started", "time": 1e14}\n{"ev')
    code, lines, errors = camshaft("runs", tmp_path)
    assert (code, errors, len(lines)) == (0, [], 3)
    assert [line.split()[:2] for line in lines[1:]] == [["a", "finished"], ["b", "killed"]]
    assert lines[2].split()[-1] == "-"
    _, broken = json.loads("\n".join(camshaft("runs", tmp_path, "--json")[1]))
    assert broken["written"] is None
