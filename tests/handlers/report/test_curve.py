"""A curve of many rows is drawn with few points, and loses no peak, no gap and no end."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers.report.curve import MARKS, curve_of
from camshaft.handlers.report.rows import Series


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
