"""The charts of a page: which metrics share one, their curves, the parts of the run."""

import json
import math
import re
from itertools import combinations

import numpy
import plotly.graph_objects
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers.tools.report.charts import FEW, charts_of, splits
from camshaft.handlers.tools.report.facts.curves import MOST_POINTS, Series
from camshaft.handlers.tools.report.facts.parts import pace, parts_of
from camshaft.handlers.tools.report.facts.run_facts import RunFacts
from camshaft.handlers.tools.report.figures import COLOURS, chart_figure, outcome, timeline_figure
from camshaft.handlers.tools.report.page import asset


def titles(*names):
    return {chart.title: chart.metrics for chart in charts_of(names)}


def test_training_and_validation_of_one_metric_share_a_chart():
    assert titles("val/loss", "loss", "accuracy", "val/accuracy") == {
        "loss": ["loss", "val/loss"],
        "accuracy": ["accuracy", "val/accuracy"],
    }
    assert titles("train/loss", "val/loss", "test/loss") == {
        "loss": ["train/loss", "test/loss", "val/loss"]
    }


def test_a_split_of_any_name_counts_if_its_metrics_are_there_without_it():
    assert titles("loss", "holdout/loss", "holdout/f1") == {
        "loss": ["loss", "holdout/loss"],
        "f1": ["holdout/f1"],
    }
    assert titles("norm/fc1", "mean/fc1") == {"norm/fc1": ["norm/fc1"], "mean/fc1": ["mean/fc1"]}


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
    others = [f"other {number}" for number in range(FEW)]
    found = charts_of([name, *others])
    assert [each.heading for each in found if each.metrics == [name]] == [heading]


def test_few_charts_share_a_heading_and_a_family_of_charts_has_its_own():
    few = charts_of(["loss", "lr", "norm/a", "norm/b", "norm/c"])
    assert [(chart.title, chart.heading) for chart in few[:2]] == [
        ("loss", "Learning"),
        ("lr", "More metrics"),
    ]
    many = charts_of(["norm/a", "norm/b", "norm/c", "size/a", "size/b", "lr", "loss"])
    assert [(chart.title, chart.heading) for chart in many] == [
        ("loss", "Learning"),
        ("lr", "Rate and throughput"),
        *(("size/a", "More metrics"), ("size/b", "More metrics")),
        *(("norm/a", "norm"), ("norm/b", "norm"), ("norm/c", "norm")),
    ]


def test_the_loss_comes_first_and_the_rate_is_never_smoothed():
    drawn = charts_of(["lr", "accuracy", "val/accuracy", "loss"])
    assert [chart.title for chart in drawn] == ["loss", "accuracy", "lr"]
    assert [chart.is_smoothed for chart in drawn] == [True, True, False]


def test_no_metric_gets_lost_whatever_it_is_called():
    names = ["/", "a/", "/a", "a//b", "", "val/", "val", "</script>", "val/val/loss", "loss"]
    drawn = [name for chart in charts_of(names) for name in chart.metrics]
    assert sorted(drawn) == sorted(names)


def curve_of(values, most=MOST_POINTS):
    series = Series(most)
    for iteration, value in enumerate(values, 1):
        series.add(iteration, 1, float(value))
    return series.curve()


values = st.lists(st.floats(), min_size=10, max_size=100) | st.lists(st.floats(), min_size=1)


@given(values, st.sampled_from([4, 8, 9, 40]))
def test_thinned_it_keeps_extremes_ends_order_and_gaps(numbers, most):
    drawn = curve_of(numbers, most)
    json.dumps(drawn, allow_nan=False)
    assert drawn["count"] == len(numbers)
    assert len(drawn["x"]) <= max(most, 4) * 5 / 4 + 5
    assert drawn["x"] == sorted(set(drawn["x"]))
    for x, y in zip(drawn["x"], drawn["y"], strict=True):
        value = numbers[x - 1]
        assert y == (value if math.isfinite(value) else None)
    finite = [value for value in numbers if math.isfinite(value)]
    if finite:
        shown = [y for y in drawn["y"] if y is not None]
        assert (min(shown), max(shown)) == (min(finite), max(finite))
        assert (shown[0], shown[-1]) == (finite[0], finite[-1])
        assert drawn["lowest"]["value"] == min(finite)
        assert drawn["highest"]["iteration"] == numbers.index(max(finite)) + 1
    else:
        assert drawn["lowest"] is drawn["highest"] is None
    assert (None in drawn["y"]) == (len(finite) < len(numbers))
    assert drawn["odd"]["count"] == len(numbers) - len(finite)


@pytest.mark.slow
@given(st.lists(st.floats(width=16), min_size=21, max_size=400))
def test_a_curve_of_rows_that_are_forgotten_is_that_of_all_rows(numbers):
    size = next(size for size in (5, 10, 20, 40, 80, 160, 320) if 5 * size >= len(numbers))
    shown = set()
    for begin in range(0, len(numbers), size):
        group = range(begin, min(begin + size, len(numbers)))
        finite = [at for at in group if math.isfinite(numbers[at])]
        shown |= {*[at for at in group if at not in finite][:1], *finite[:1], *finite[-1:]}
        shown |= {*[choose(finite, key=numbers.__getitem__) for choose in (min, max) if finite]}
    assert curve_of(numbers, 20)["x"] == [at + 1 for at in sorted(shown)]


@given(st.lists(st.integers(-1000, 1000), min_size=10, max_size=300))
def test_the_means_stand_for_every_row(numbers):
    drawn = curve_of(numbers, 8)
    if "means" in drawn:
        means = drawn["means"]
        assert sum(means["n"]) == len(numbers)
        total = sum(y * n for y, n in zip(means["y"], means["n"], strict=True))
        assert round(total) == sum(numbers)


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


def test_a_process_that_misses_several_signs_of_life_is_silent():
    records = [line(0, "started", interval=60), line(100, "running", 7)]
    ends = [parts_of(records, is_alive=True, now=now)[0].end for now in (150, 279, 281)]
    assert ends == ["running", "running", "silent"]
    (part,) = parts_of(records, is_alive=True, now=100 + 7300)
    assert outcome(part) == "no word for 2 hours"


def test_nothing_tells_whether_a_process_of_another_machine_is_alive():
    records = [line(0, "started", environment={"host": "far"}), line(100, "running", 7)]
    assert parts_of(records, is_alive=False, now=110, machine="here")[0].end == "running"
    assert parts_of(records, is_alive=False, now=999, machine="here")[0].end == "silent"
    assert parts_of(records, is_alive=False, now=110, machine="far")[0].end == "killed"
    later = [*records, line(200, "resumed", 7, "b"), line(300, "completed", 9, "b")]
    assert [part.end for part in parts_of(later, is_alive=False, now=310, machine="here")] == [
        "killed",
        "completed",
    ]


def test_the_pace_is_taken_over_a_second_at_least_and_follows_the_last_resume():
    records = [
        *(line(0, "started"), line(0.5, "running", 10), line(2, "running", 40)),
        line(4, "running", 50),
        *(line(10, "resumed", 40, "b"), line(11, "running", 50, "b"), line(12, "saving", 50, "b")),
    ]
    assert pace(parts_of(records, is_alive=False)) == ([40, 50], [20.0, 10.0])


def run_of(name="run", journal=(), **metrics):
    curves = {metric: curve_of(values) for metric, values in metrics.items()}
    found = parts_of(list(journal), is_alive=False)
    return RunFacts(name, curves, found, {}, [], {}, {}, [])


JOURNAL = [
    *(line(100, "started", 0), line(110, "saving", 5), line(120, "running", 7)),
    *(line(200, "resumed", 5, "b"), line(230, "completed", 9, "b")),
]


def figure_of(*runs):
    (chart,) = charts_of(name for run in runs for name in run.curves)
    figure = chart_figure(chart, runs, splits([chart]))
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


def test_a_run_has_one_colour_in_all_charts_and_the_eleventh_is_dashed():
    runs = [run_of(f"run {number}", lr=[1.0]) for number in range(12)]
    del runs[3].curves["lr"]
    lines = [(each["meta"], each["line"]["dash"]) for each in figure_of(*runs)["data"]]
    assert [(meta["of"], meta["colour"], dash) for meta, dash in lines] == [
        (f"run {number}", f"c{number % 10}", "dash" if number > 9 else "solid")
        for number in range(12)
        if number != 3
    ]


# Machado, Oliveira and Fernandes 2009: how colours look to people without one kind of cone.
SIGHT = {
    "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
LMS = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
LAB = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]


def oklab(colour, sight):
    channels = numpy.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    light = numpy.where(channels > 0.04045, ((channels + 0.055) / 1.055) ** 2.4, channels / 12.92)
    seen = numpy.clip(numpy.array(SIGHT[sight]) @ light, 0, 1)
    return numpy.array(LAB) @ numpy.cbrt(numpy.array(LMS) @ seen)


@pytest.mark.parametrize("sight", SIGHT)
def test_ten_colours_can_be_told_apart_in_light_and_dark_by_every_kind_of_eye(sight):
    style = asset("page.css")
    for scheme in (style.split("@media")[0], style.split("@media")[1]):
        colours = re.findall(r"--c\d: (#\w{6})", scheme)
        assert len(set(colours)) == COLOURS
        places = [oklab(colour, sight) for colour in colours]
        distances = [math.dist(one, other) for one, other in combinations(places, 2)]
        assert min(distances) > 0.08  # a just noticeable difference is 0.02


def test_a_constant_can_be_read_from_its_axis():
    axis = figure_of(run_of(lr=[0.001] * 3))["layout"]["yaxis"]
    assert axis == {"autorangeoptions": {"minallowed": 0.0005, "maxallowed": 0.0015}}
    assert figure_of(run_of(lr=[0.0] * 3))["layout"]["yaxis"] == {}
    assert figure_of(run_of(lr=[0.1, 0.2]))["layout"]["yaxis"] == {}


def test_the_timeline_has_a_bar_for_each_part_and_marks_for_restarts_and_checkpoints():
    figure = timeline_figure(
        [run_of(journal=JOURNAL), run_of("other", [line(1e300, "started", 0)])]
    )
    plotly.graph_objects.Figure(figure)
    traces = {each["name"]: each for each in figure["data"]}
    assert set(traces) == {"finished", "killed", "started again", "checkpoint"}
    assert traces["finished"]["x"] == [30_000]  # milliseconds
    assert traces["killed"]["y"] == ["run", "other"]
    assert traces["started again"]["customdata"] == ["started again at iteration 5"]
    forked = line(100, "resumed", 5, part=3) | {"checkpoint": "runs/parent/iteration-5"}
    figure = timeline_figure([run_of(journal=[forked])])
    (mark,) = (each for each in figure["data"] if each["name"] == "started again")
    assert mark["customdata"] == ["started again at iteration 5, from runs/parent/iteration-5"]
    assert traces["checkpoint"]["customdata"] == ["checkpoint at iteration 5"]
    assert traces["checkpoint"]["x"][0].endswith(":50.000")
