"""The charts of a page: which metrics share one, their curves, the parts of the run."""

import json
import math

import plotly.graph_objects
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers.report.charts import charts
from camshaft.handlers.report.curve import MARKS, curve_of
from camshaft.handlers.report.figures import chart_figure, timeline_figure
from camshaft.handlers.report.parts import pace, parts_of
from camshaft.handlers.report.rows import Series
from camshaft.handlers.report.run import RunFacts


def titles(*names):
    return {chart.title: chart.metrics for chart in charts(names)}


def test_training_and_validation_of_one_metric_share_a_chart():
    assert titles("val/loss", "loss", "accuracy", "val/accuracy") == {
        "loss": ["loss", "val/loss"],
        "accuracy": ["accuracy", "val/accuracy"],
    }
    assert titles("train/loss", "val/loss", "test/loss") == {
        "loss": ["train/loss", "test/loss", "val/loss"]
    }


def test_a_set_of_any_name_counts_if_its_metrics_are_there_without_it():
    assert titles("loss", "holdout/loss", "holdout/f1") == {
        "loss": ["loss", "holdout/loss"],
        "f1": ["holdout/f1"],
    }
    assert titles("norm/fc1", "mean/fc1") == {"norm/fc1": ["norm/fc1"], "mean/fc1": ["mean/fc1"]}


def test_validated_ones_are_told_from_trained_ones():
    (chart,) = charts(["train/loss", "val/loss"])
    assert chart.validated == ["val/loss"]


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        *(("loss", "Learning"), ("val/f1", "Learning"), ("grad_norm", "More metrics")),
        *(
            ("loss/mean", "Learning"),
            ("mfu", "Rate and throughput"),
            ("step_time", "Rate and throughput"),
        ),
        *(("lr", "Rate and throughput"), ("lr/head", "Rate and throughput")),
        *(("samples_per_second", "Rate and throughput"), ("gpu/memory", "Rate and throughput")),
        *(("colour", "More metrics"), ("multirate", "More metrics")),
    ],
)
def test_a_chart_stands_under_its_heading(name, heading):
    assert charts([name])[0].heading == heading


def test_the_loss_comes_first_and_the_rate_is_never_smoothed():
    drawn = charts(["lr", "accuracy", "val/accuracy", "loss"])
    assert [chart.title for chart in drawn] == ["loss", "accuracy", "lr"]
    assert [chart.is_smoothed for chart in drawn] == [True, True, False]


def test_no_metric_gets_lost_whatever_it_is_called():
    names = ["/", "a/", "/a", "a//b", "", "val/", "val", "</script>", "val/val/loss", "loss"]
    drawn = [name for chart in charts(names) for name in chart.metrics]
    assert sorted(drawn) == sorted(names)


def series_of(values):
    return Series(list(range(1, len(values) + 1)), [1] * len(values), [float(v) for v in values])


def test_few_points_are_all_drawn_as_they_are():
    drawn = curve_of(series_of([3, math.nan, 1, math.inf, 2]))
    assert drawn["x"] == [1, 2, 3, 4, 5]
    assert drawn["y"] == [3, None, 1, None, 2]
    assert drawn["odd"] == {"count": 2, "x": [2, 4]}
    assert drawn["lowest"] == {"value": 1, "iteration": 3, "epoch": 1}
    assert drawn["highest"] == {"value": 3, "iteration": 1, "epoch": 1}
    assert "means" not in drawn


values = st.lists(st.floats(), min_size=10, max_size=100) | st.lists(st.floats(), min_size=1)


@given(values, st.sampled_from([4, 8, 9, 40]))
def test_thinned_it_keeps_extremes_ends_order_and_gaps(numbers, most):
    whole, drawn = series_of(numbers), curve_of(series_of(numbers), most)
    json.dumps(drawn, allow_nan=False)
    assert drawn["count"] == len(numbers)
    assert len(drawn["x"]) <= max(most, 4) * 5 / 4 + 5
    assert drawn["x"] == sorted(set(drawn["x"]))
    for x, y in zip(drawn["x"], drawn["y"], strict=True):
        value = whole.values[x - 1]
        assert y == (value if math.isfinite(value) else None)
    finite = [value for value in numbers if math.isfinite(value)]
    if finite:
        shown = [y for y in drawn["y"] if y is not None]
        assert (min(shown), max(shown)) == (min(finite), max(finite))
        assert drawn["lowest"]["value"] == min(finite)
        assert drawn["highest"]["iteration"] == numbers.index(max(finite)) + 1
    else:
        assert drawn["lowest"] is drawn["highest"] is None
    assert (None in drawn["y"]) == (len(finite) < len(numbers))
    assert drawn["odd"]["count"] == len(numbers) - len(finite)


@given(st.lists(st.integers(-1000, 1000), min_size=10, max_size=300))
def test_the_means_stand_for_every_row(numbers):
    drawn = curve_of(series_of(numbers), 8)
    if "means" in drawn:
        means = drawn["means"]
        assert sum(means["n"]) == len(numbers)
        total = sum(y * n for y, n in zip(means["y"], means["n"], strict=True))
        assert round(total) == sum(numbers)


def test_a_gap_inside_a_group_is_kept_and_means_of_large_numbers_are_numbers():
    drawn = curve_of(series_of([1.7e308, math.nan, *[1.7e308] * 30]), 8)
    assert drawn["y"].count(None) == 1
    assert set(drawn["means"]["y"]) == {1.7e308}


def test_a_curve_of_nothing_but_nan_has_marks_within_bounds():
    drawn = curve_of(series_of([math.nan] * 10_000))
    assert drawn["odd"]["count"] == 10_000
    assert len(drawn["odd"]["x"]) <= MARKS
    assert drawn["last"]["value"] == "nan"


def line(time, event, iteration=0, part="a", **more):
    return {"time": time, "part": part, "event": event, "iteration": iteration, **more}


def test_each_part_ends_as_its_last_line_says():
    records = [
        *(line(0, "started"), line(5, "saving", 50, reason="why"), line(9, "running", 90)),
        *(line(20, "resumed", 50, "b"), line(30, "interrupted", 99, "b", reason="SIGTERM")),
        *(line(40, "resumed", 99, "c"), line(50, "completed", 200, "c", reason="max_epochs")),
        line(50.1, "saving", 200, "c", reason="last"),
        *(line(60, "started", 0, "d"), line(61, "failed", 3, "d", reason="OSError: full")),
    ]
    found = parts_of(records, is_alive=False)
    assert [
        (part.first["event"], part.first["iteration"], part.end, part.last["iteration"])
        for part in found
    ] == [
        ("started", 0, "killed", 90),
        ("resumed", 50, "interrupted", 99),
        ("resumed", 99, "completed", 200),
        ("started", 0, "failed", 3),
    ]
    assert [part.reason for part in found] == ["", "SIGTERM", "max_epochs", "OSError: full"]
    assert [(save["time"], save["iteration"]) for save in found[0].saves] == [(5, 50)]


def test_only_the_newest_part_without_an_end_can_be_alive():
    records = [line(0, "started"), line(10, "resumed", 5, "b")]
    assert [part.end for part in parts_of(records, is_alive=True)] == ["killed", "running"]
    assert [part.end for part in parts_of(records, is_alive=False)] == ["killed", "killed"]
    done = [*records, line(11, "completed", 9, "b")]
    assert [part.end for part in parts_of(done, is_alive=False)] == ["killed", "completed"]


def test_a_clock_that_was_set_back_changes_no_order():
    records = [line(100, "started"), line(20, "resumed", 5, "b"), line(30, "running", 9, "b")]
    assert [part.end for part in parts_of(records, is_alive=True)] == ["killed", "running"]


def test_what_is_no_number_counts_as_0():
    records = [line(float("nan"), "started", float("inf")), line(1e999, "running", True)]
    [part] = parts_of(records, is_alive=False)
    clocks = ("time", "iteration")
    assert [line[clock] for line in (part.first, part.last) for clock in clocks] == [0, 0, 0, 0]
    assert pace(parts_of(records, is_alive=False)) == ([], [])


def test_lines_of_two_writers_are_told_apart():
    records = [line(0, "started"), line(1, "failed", 0, "b"), line(2, "completed", 8)]
    assert [part.end for part in parts_of(records, is_alive=False)] == ["completed", "failed"]


def test_the_pace_is_taken_over_a_second_at_least_and_follows_the_last_resume():
    records = [
        *(line(0, "started"), line(0.5, "running", 10), line(2, "running", 40)),
        line(4, "running", 50),
        *(line(10, "resumed", 40, "b"), line(11, "running", 50, "b"), line(12, "saving", 50, "b")),
    ]
    assert pace(parts_of(records, is_alive=False)) == ([40, 50], [20.0, 10.0])


def test_lines_without_times_or_clocks_are_no_error():
    records = [{"event": "started"}, {"event": "completed", "time": "late", "iteration": None}]
    (part,) = parts_of(records, is_alive=True)
    assert part.last["iteration"] == 0
    assert pace([part]) == ([], [])


def run_of(name="run", journal=(), **metrics):
    curves = {
        metric: curve_of(Series(list(range(1, len(values) + 1)), [1] * len(values), values))
        for metric, values in metrics.items()
    }
    found = parts_of(list(journal), is_alive=False)
    return RunFacts(name, curves, found, {}, [], {}, {}, [])


JOURNAL = [
    *(line(100, "started", 0), line(110, "saving", 5), line(120, "running", 7)),
    *(line(200, "resumed", 5, "b"), line(230, "completed", 9, "b")),
]


def figure_of(*runs):
    (chart,) = charts(name for run in runs for name in run.curves)
    figure = chart_figure(chart, runs)
    plotly.graph_objects.Figure(figure)  # raises for a property that plotly does not have
    json.dumps(figure, allow_nan=False)
    return figure


def test_one_run_has_a_colour_for_each_metric_and_a_line_where_it_was_resumed():
    figure = figure_of(run_of(loss=[3.0] * 30, **{"val/loss": [4.0, 2.0]}, journal=JOURNAL))
    assert [(each["name"], each["meta"]["colour"]) for each in figure["data"]] == [
        ("loss", "c0"),
        ("val/loss", "c1"),
    ]
    assert ["smooth" in each["meta"] for each in figure["data"]] == [True, False]
    assert [each["mode"] for each in figure["data"]] == ["lines", "lines+markers"]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [5]


def test_several_runs_have_a_colour_each_and_dots_for_training():
    runs = [run_of(name, loss=[3.0], **{"val/loss": [4.0]}) for name in ("one", "two")]
    figure = figure_of(*runs)
    assert [
        (each["name"], each["meta"]["colour"], each["line"]["dash"]) for each in figure["data"]
    ] == [
        *(("one: loss", "c0", "dot"), ("one: val/loss", "c0", "solid")),
        *(("two: loss", "c1", "dot"), ("two: val/loss", "c1", "solid")),
    ]


@pytest.mark.parametrize(("values", "shown"), [([1.0, 2.0], False), ([1.0, float("nan")], True)])
def test_one_curve_needs_a_legend_only_for_its_gaps(values, shown):
    assert figure_of(run_of(loss=values))["layout"]["showlegend"] == shown


def test_the_timeline_has_a_bar_for_each_part_and_marks_for_restarts_and_checkpoints():
    figure = timeline_figure(
        [run_of(journal=JOURNAL), run_of("other", [line(1e300, "started", 0)])]
    )
    plotly.graph_objects.Figure(figure)
    traces = {each["name"]: each for each in figure["data"]}
    assert set(traces) == {"completed", "killed", "started again", "checkpoint"}
    assert traces["completed"]["x"] == [30_000]  # milliseconds
    assert traces["killed"]["y"] == ["run", "other"]
    assert traces["started again"]["customdata"] == ["started again at iteration 5"]
    assert traces["checkpoint"]["customdata"] == ["checkpoint at iteration 5"]
    assert traces["checkpoint"]["x"][0].endswith(":50.000")
