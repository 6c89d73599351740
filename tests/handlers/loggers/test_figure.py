"""Figures of matplotlib."""

from matplotlib.figure import Figure

from camshaft.handlers.loggers import figure


def test_a_figure_of_matplotlibs_is_shown(shown):
    drawn = Figure(figsize=(3, 2), dpi=50)
    drawn.add_subplot().plot([1, 2, 3])
    [event] = shown({"curve": figure(drawn)}).Images("curve")
    assert (event.width, event.height) == (150, 100)


def test_a_figure_that_is_changed_or_closed_later_is_shown_as_it_was():
    drawn = Figure(figsize=(1, 1), dpi=20)
    canvas = drawn.canvas
    image = figure(drawn, "empty")
    before = image.pixels.clone()
    drawn.add_subplot().plot([1, 2, 3])
    assert (image.pixels == before).all()
    assert not figure(drawn).pixels.equal(before)
    assert drawn.canvas is canvas
    assert image.caption == "empty"
