"""What a run's directory tells besides its rows: clocks, histograms and images."""

import json
import math
import tracemalloc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Journal, JSONLines
from camshaft.handlers.loggers import Histogram, Image, ImageFiles
from camshaft.handlers.tools.report import write_report
from camshaft.handlers.tools.report.facts.curves import MOST_COLUMNS, RANGES, heatmap_of
from camshaft.handlers.tools.report.facts.curves import HistogramRow as Counted
from camshaft.handlers.tools.report.facts.metric_files import MetricFiles
from camshaft.handlers.tools.report.facts.parts import clocks_of, parts_of, work_time
from camshaft.handlers.tools.report.facts.pictures import SHOWN, Picture, images_in, to_show
from camshaft.handlers.tools.report.facts.run_facts import RunDirectory


def line(time, event, iteration, part="a", step=0, epoch=0):
    clocks = {"iteration": iteration, "step": step, "epoch": epoch}
    return {"time": time, "part": part, "event": event, **clocks}


def parts(*lines):
    return parts_of(list(lines), is_alive=False)


def test_time_is_time_at_work_without_pauses_and_with_what_was_repeated():
    found = parts(
        *(line(0, "started", 0), line(10, "running", 100), line(12, "failed", 120)),
        *(line(500, "resumed", 100, "b"), line(510, "completed", 200, "b")),
    )
    assert work_time(found) == [(0, 0), (100, 10), (100, 12), (200, 22)]
    clocks = clocks_of({at: (at // 2, 1 + at // 100) for at in (50, 100, 150)}, found, 0)
    assert clocks["iteration"] == [0, 50, 100, 120, 150, 200]
    assert clocks["step"] == [0, 25, 50, 0, 75, 0]
    assert clocks["time"] == [0, 5, 10, 14, 17, 22]


counts = st.lists(st.integers(0, 100), min_size=1, max_size=20).filter(any)


@given(st.lists(st.tuples(counts, st.floats(-9, 9), st.floats(0, 5)), min_size=1, max_size=5))
def test_ranges_that_all_histograms_share_hold_all_values(told):
    found = [
        Counted(at, numbers, [low + width * edge for edge in range(len(numbers) + 1)])
        for at, (numbers, low, width) in enumerate(told)
    ]
    drawn = heatmap_of(found)
    json.dumps(drawn, allow_nan=False)
    assert len(drawn["y"]) == len(drawn["z"]) == RANGES
    for column in zip(*drawn["z"], strict=True):
        assert sum(column) == pytest.approx(1, abs=1e-3)


def test_values_stay_where_they_are_and_many_histograms_become_some():
    many = [Counted(at, [0, 4, 0, 4], [0, 1, 2, 3, 4]) for at in range(1000)]
    drawn = heatmap_of(many)
    assert (len(drawn["x"]), drawn["count"]) == (MOST_COLUMNS, 1000)
    assert (drawn["x"][0], drawn["x"][-1]) == (0, 999)
    quarter = RANGES // 4
    sums = [sum(row[0] for row in drawn["z"][at * quarter :][:quarter]) for at in range(4)]
    assert sums == pytest.approx([0, 0.5, 0, 0.5])


def test_histograms_go_through_a_row_and_a_resume_and_what_is_none_is_left_out(tmp_path):
    def step(state, batch):
        state.metrics["weights"] = Histogram.of(torch.tensor([0.0, 1.0, 1.0]), bins=2)
        state.metrics["odd"] = Histogram([1], [0.0, math.inf])
        if state.iteration == 5 and not seen:
            seen.append(5)
            raise RuntimeError("stop here")

    seen = []
    engine = Engine(step).add(
        Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED(every=3), resume=True),
        JSONLines(tmp_path / "rows.jsonl", when=Events.ITERATION_COMPLETED),
    )
    with pytest.raises(RuntimeError):
        engine.run(range(6), max_epochs=1)
    engine.run(range(6), max_epochs=1)
    text = (tmp_path / "rows.jsonl").read_text()
    with (tmp_path / "rows.jsonl").open("a") as file:
        for value in ({}, {"counts": 1, "edges": [1]}, {"counts": [-1], "edges": [0, 1]}):
            file.write(json.dumps({"iteration": 7, "weights": value}) + "\n")
    rows = MetricFiles(tmp_path)
    rows.look()
    assert list(rows.histograms) == ["weights"]
    whole = [Counted(at, [1, 2], [0, 0.5, 1]) for at in range(1, 7)]
    assert rows.histograms["weights"] == whole
    assert '"odd": {"counts": [1], "edges": [0.0, "Infinity"]}' in text


def test_images_are_found_where_image_files_wrote_them(tmp_path):
    def step(state, batch):
        state.metrics["val/a b"] = Image(torch.zeros(2, 3))

    files = ImageFiles(tmp_path / "images", when=Events.ITERATION_COMPLETED)
    Engine(step, files, Checkpoint(tmp_path), Journal(tmp_path)).run(range(11), max_epochs=1)
    (next(tmp_path.glob("iteration-*")) / "7.png").touch()
    (tmp_path / "images" / "secret").mkdir()
    (tmp_path / "images" / "secret" / "1.png").symlink_to(tmp_path / "journal.jsonl")
    (tmp_path / "images" / "plot.png").touch()
    (name, pictures), *others = images_in(tmp_path).items()
    assert (name, others) == ("val/a b", [])
    assert [picture.iteration for picture in pictures] == list(range(1, 12))  # 2 before 10
    assert {picture.width for picture in pictures} == {3}
    run = RunDirectory(tmp_path, "run")
    run.look()
    assert run.facts().images["val/a b"] == pictures
    pictures[-1].path.unlink()
    assert run.look()


def test_a_page_shows_some_images_of_each_name_and_the_newest_first(tmp_path):
    def pictures(name, count, size):
        return [Picture(tmp_path / name / f"{at}.png", at, size) for at in range(count)]

    images = {("a", 0): pictures("a", 100, 10), ("b", 0): pictures("b", 2, 10)}
    chosen = to_show(images, most=10_000)
    assert sorted(each.iteration for each in chosen if each in images["a", 0])[::11] == [0, 99]
    assert len(chosen) == SHOWN + 2
    few = to_show(images, most=30)
    assert [max(few & {*each}, key=lambda one: one.iteration) for each in images.values()] == [
        images["a", 0][-1],
        images["b", 0][-1],
    ]
    assert len(few) == 3


def test_a_run_that_starts_over_in_a_directory_is_shown_without_the_run_before(tmp_path):
    def script(epochs, **arguments):
        engine = Engine(lambda state, batch: state.metrics.update(loss=batch))
        engine.add(Checkpoint(tmp_path, **arguments), JSONLines(tmp_path / "rows.jsonl"))
        engine.add(Journal(tmp_path)).run([3.0, 2.0, 1.0], max_epochs=epochs)

    script(3)
    script(4, resume=True)
    script(1, start_over=True)
    script(2, resume=True)
    facts = RunDirectory(tmp_path, "run").facts()
    assert [part.first["event"] for part in facts.parts] == ["started", "resumed"]
    assert max(facts.clocks["iteration"]) == 6


def test_a_directory_with_the_name_of_a_file_of_rows_is_told_of_on_the_page(tmp_path, capsys):
    (tmp_path / "a.jsonl").mkdir()
    (tmp_path / "b.jsonl").write_text('{"iteration": 1, "loss": 0.5}\n')
    page = tmp_path / "page.html"
    assert write_report([tmp_path], page) == 0
    problem = "a.jsonl cannot be read: "
    assert problem in page.read_text()
    assert problem in capsys.readouterr().out
    (tmp_path / "a.jsonl").rmdir()
    run = RunDirectory(tmp_path, "run")
    assert run.look()
    assert run.facts().notes == []
    (tmp_path / "c.jsonl").mkdir()
    assert [run.look(), run.look()] == [True, False]
    assert [note[:23] for note in run.facts().notes] == ["c.jsonl cannot be read:"]


def test_numbers_beyond_all_floats_are_infinite_in_rows_and_nothing_in_a_journal(tmp_path):
    large = "9" * 400
    rows = [
        f'{{"iteration": 1, "loss": {large}, "gain": -{large}}}',
        f'{{"iteration": 2, "loss": 1, "gain": {"9" * 5000}}}',
        *(f'{{"iteration": {odd}, "loss": 2}}' for odd in (large, "1e300", -1, f'"{large}"')),
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{row}\n" for row in rows))
    journal = [
        f'{{"event": "started", "part": "a", "time": {large}, "iteration": {large}}}',
        f'{{"event": "completed", "part": "a", "time": 2, "iteration": 2, "epoch": -{large}}}',
    ]
    (tmp_path / "journal.jsonl").write_text("".join(f"{line}\n" for line in journal))
    run = RunDirectory(tmp_path, "run")
    run.look()
    series = run.facts().curves
    assert (series["loss"]["count"], series["gain"]["count"]) == (1, 1)
    assert run.facts().parts[0].last["epoch"] == 0
    assert write_report([tmp_path], tmp_path / "page.html") == 0


@pytest.mark.slow
def test_five_times_the_rows_take_no_more_memory(tmp_path):
    peaks = []
    for rows in (7_000, 35_000):
        lines = (f'{{"iteration": {each}, "loss": {1 / each}}}\n' for each in range(1, rows + 1))
        (tmp_path / "rows.jsonl").write_text("".join(lines))
        tracemalloc.start()
        run = RunDirectory(tmp_path, "run")
        run.look()
        assert run.facts().curves["loss"]["count"] == rows
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
