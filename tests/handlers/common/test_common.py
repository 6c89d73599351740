"""What several handlers share: media, schedulers, numbers, modes and tables."""

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft import Engine
from camshaft.handlers import EarlyStopping, RestoreBest, best
from camshaft.handlers.common import Embedding, Histogram, Image, PRCurve, Text, mode_of, scalars


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 7), (1, 5, 7)),
        ((3, 5, 7), (3, 5, 7)),
        ((4, 1, 8, 8), (1, 16, 16)),
        ((5, 3, 2, 4), (3, 4, 12)),
        ((1, 4, 2, 2), (4, 2, 2)),
    ],
)
def test_an_image_is_one_picture_with_channels_first(shape, expected):
    assert Image(torch.zeros(shape)).pixels.shape == expected


def test_several_pictures_lie_side_by_side_line_by_line():
    pixels = torch.arange(5.0)[:, None, None, None].expand(5, 1, 2, 2)
    lines = Image(pixels).pixels[0, ::2, ::2]
    assert lines.tolist() == [[0, 1, 2], [3, 4, 0]]


@pytest.mark.parametrize("shape", [(5,), (7, 5, 5), (1, 1, 1, 1, 1), (0, 3, 4, 4), (5, 7, 3)])
def test_pixels_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"Image got pixels of shape .*permute\(2, 0, 1\)"):
        Image(torch.zeros(shape))


def test_a_medium_shows_the_moment_it_was_made_in():
    weight = torch.ones(2, 2, requires_grad=True)
    image, values = Image(weight), Histogram.of(weight)
    curve, points = PRCurve(weight > 0, weight), Embedding(weight)
    with torch.no_grad():
        weight.zero_()
    for held in (image.pixels, curve.scores, points.vectors):
        assert held.min() == 1
        assert not held.requires_grad
    assert values.edges[0] == 1


def test_a_histogram_counts_what_is_in_each_range():
    histogram = Histogram.of(torch.tensor([0.0, 0.5, 1.0, 4.0]), bins=4)
    assert histogram.counts.tolist() == [2, 1, 0, 1]
    assert histogram.edges.tolist() == [0, 1, 2, 3, 4]


@given(
    st.lists(st.floats(width=32, min_value=-1e6, max_value=1e6), min_size=1, max_size=50),
    st.integers(1, 20),
)
def test_every_finite_value_is_counted_once_between_the_smallest_and_the_largest(values, bins):
    histogram = Histogram.of([*values, float("nan"), float("inf")], bins=bins)
    assert histogram.counts.sum() == len(values)
    assert histogram.edges[0] == min(values)
    assert (histogram.edges.diff() > 0).all() or max(values) - min(values) < 2
    assert histogram.edges[-1] >= max(values)


@pytest.mark.parametrize("values", [[], [float("nan")], [float("inf"), float("-inf")]])
def test_a_histogram_of_nothing_counts_nothing(values):
    assert Histogram.of(torch.tensor(values)).counts.sum() == 0


def test_a_histogram_of_whole_numbers_and_of_halves_can_be_made():
    assert Histogram.of(torch.tensor([1, 2, 3]), bins=3).counts.tolist() == [1, 1, 1]
    assert Histogram.of(torch.tensor([1.0, 2.0]).half(), bins=2).counts.tolist() == [1, 1]


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match=r"Histogram.of\(values\)"):
        Histogram(torch.zeros(3), torch.zeros(3))
    with pytest.raises(TypeError, match=r"got no edges.*Histogram.of\(values\)"):
        Histogram(torch.randn(8))
    with pytest.raises(ValueError, match="3 targets and 2 scores"):
        PRCurve([1, 0, 1], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"\{'labels': 2\}"):
        Embedding(torch.zeros(3, 2), labels=["a", "b"])
    with pytest.raises(TypeError, match="needs a str"):
        Text(3)


def test_python_numpy_and_tensor_numbers_become_floats_in_the_order_of_the_metrics():
    metrics = {
        "tensor": torch.tensor(0.5, requires_grad=True),
        "python": 3,
        "numpy": numpy.float32(0.25),
        "half": torch.tensor(2.0, dtype=torch.bfloat16),
        "count": torch.tensor(2**40),
    }
    numbers = scalars(metrics)
    assert list(numbers.items()) == [
        *(("tensor", 0.5), ("python", 3.0), ("numpy", 0.25), ("half", 2.0), ("count", 2.0**40))
    ]
    assert all(type(value) is float for value in numbers.values())


@pytest.mark.parametrize(
    "value", [torch.ones(1), torch.eye(2), torch.tensor(1j), "text", None, [1.0], 1j]
)
def test_what_is_not_one_number_is_left_out(value):
    assert scalars({"other": value, "loss": 1.0}) == {"loss": 1.0}


@pytest.mark.parametrize("metric", ["val/loss", "score", "val/error", "heatmap", "precise"])
def test_without_a_word_smaller_is_better(metric):
    assert mode_of("X", metric, None) == "min"


@pytest.mark.parametrize("metric", ["val/accuracy", "val_acc", "F1", "test/top-5 accuracy"])
@pytest.mark.parametrize("make", [EarlyStopping, RestoreBest, lambda metric: best(1, metric)])
def test_where_the_name_speaks_for_larger_it_has_to_be_said(make, metric):
    with pytest.raises(ValueError, match="say which: mode='max' or mode='min'"):
        make(metric)


@pytest.mark.parametrize("make", [EarlyStopping, RestoreBest])
def test_a_mode_that_is_none_is_refused(make):
    with pytest.raises(ValueError, match="needs 'min' or 'max'"):
        make("val/loss", mode="highest")


@pytest.mark.parametrize("value", [torch.zeros(2), "high", None], ids=["two", "text", "none"])
def test_a_metric_that_is_compared_has_to_be_one_number(value):
    engine = Engine(lambda state, batch: state.metrics.update(score=value))
    engine.add(EarlyStopping("score", patience=1))
    with pytest.raises((TypeError, ValueError), match=r"the metric 'score' is compared .* number"):
        engine.run([1], max_epochs=1)
