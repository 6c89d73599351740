"""The figures of a page, as plotly takes them."""

import json

import plotly.graph_objects
import pytest

from camshaft.handlers.report.charts import charts
from camshaft.handlers.report.curve import curve_of
from camshaft.handlers.report.figures import chart_figure, timeline_figure
from camshaft.handlers.report.parts import parts_of
from camshaft.handlers.report.rows import Series
from camshaft.handlers.report.run import RunFacts


def run_of(name="run", journal=(), **metrics):
    curves = {
        metric: curve_of(Series(list(range(1, len(values) + 1)), [1] * len(values), values))
        for metric, values in metrics.items()
    }
    found = parts_of(list(journal), is_alive=False)
    return RunFacts(name, curves, found, {}, [], {}, {}, [])


def line(time, event, iteration, part="a"):
    return {"time": time, "part": part, "event": event, "iteration": iteration}


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
