"""Images: as PNG, read back by Pillow, from figures of matplotlib, and as files."""

import io
import math

import numpy
import PIL.Image
import pytest
import torch
from matplotlib.figure import Figure

from camshaft import Engine, Events
from camshaft.handlers.loggers import Image, ImageFiles, Text, figure
from camshaft.handlers.loggers.images import png

EACH = Events.ITERATION_COMPLETED


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_bytes_come_back_as_they_were(channels, mode):
    pixels = torch.randint(0, 256, (channels, 5, 3), dtype=torch.uint8)
    with PIL.Image.open(io.BytesIO(png(Image(pixels)))) as back:
        assert back.mode == mode
        found = torch.tensor(numpy.array(back)).reshape(5, 3, channels)
    assert torch.equal(found, pixels.permute(1, 2, 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floats_go_from_black_at_0_to_white_at_1_and_no_further(dtype):
    values = torch.tensor([[-1.0, 0.0, 0.5, 1.0, 2.0, math.nan, math.inf]], dtype=dtype)
    with PIL.Image.open(io.BytesIO(png(Image(values)))) as back:
        assert numpy.array(back).tolist() == [[0, 0, 128, 255, 255, 0, 255]]


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


def run(directory, metrics, count=1):
    engine = Engine(lambda state, batch: state.metrics.update(metrics))
    engine.add(ImageFiles(directory, when=EACH)).run(range(count), max_epochs=1)
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*.*"))


def test_each_image_lies_under_its_name_and_iteration(tmp_path):
    shown = {"val/digits": Image(torch.ones(1, 3, 5)), "loss": 1.0, "note": Text("none")}
    assert run(tmp_path, shown, 2) == ["val/digits/1.png", "val/digits/2.png"]
    with PIL.Image.open(tmp_path / "val/digits/2.png") as image:
        assert (image.size, image.getpixel((0, 0))) == ((5, 3), 255)


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/outside", "a/../../outside", "..", "", "a\0b"]
)
def test_no_name_leads_out_of_the_directory(tmp_path, name):
    inside = tmp_path / "inside"
    inside.mkdir()
    run(inside, {name: Image(torch.ones(2, 2))})
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in found] == ["1.png"]
    assert inside in found[0].resolve().parents
