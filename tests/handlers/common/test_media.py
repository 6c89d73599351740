"""What can be shown of a run besides numbers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers.common import Embedding, Histogram, Image, PRCurve, Text, on_host


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
    with pytest.raises(ValueError, match="3 targets and 2 scores"):
        PRCurve([1, 0, 1], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"\{'labels': 2\}"):
        Embedding(torch.zeros(3, 2), labels=["a", "b"])
    with pytest.raises(TypeError, match="needs a str"):
        Text(3)


def test_labels_may_be_a_tensor():
    assert Embedding(torch.zeros(2, 2), labels=torch.tensor([3, 4])).labels == ["3", "4"]


def test_on_the_host_it_is_the_same():
    image = on_host(Image(torch.ones(2, 2), "ones"))
    assert (image.pixels.device.type, image.caption) == ("cpu", "ones")
    text = Text("words")
    assert on_host(text) is text
