"""Images as files."""

import PIL.Image
import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers.loggers import Image, ImageFiles, Text

EACH = Events.ITERATION_COMPLETED


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
