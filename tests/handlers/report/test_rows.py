"""Rows as loggers wrote them, also while they still do."""

import math

from camshaft import Engine, Events
from camshaft.handlers import JSONLines
from camshaft.handlers.report.rows import MetricFiles


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
