"""What the loggers wrote, in TensorBoard itself."""

import json
import re
import subprocess
import sys
from urllib.request import Request, urlopen

import pytest


@pytest.fixture(scope="module")
def tensorboard(trained):
    """The address of a TensorBoard on the directory of the example on digits."""
    options = ["--logdir", str(trained), "--port", "0", "--load_fast", "false"]
    command = [sys.executable, "-m", "tensorboard.main", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if found := re.search(r" at (http://\S+)", line):
                yield found[1]
                break
        process.terminate()
        process.stderr.read()


def tags(address, plugin):
    """What TensorBoard has found for one of its plugins, over all runs."""
    with urlopen(f"{address}data/plugin/{plugin}/tags") as answer:
        return {tag for found in json.load(answer).values() for tag in found}


def test_the_scalars_are_there(tensorboard, open_page, artefact):
    assert {"loss", "lr", "accuracy", "val/loss", "val/accuracy"} <= tags(tensorboard, "scalars")
    page = open_page(f"{tensorboard}#timeseries", viewport={"width": 1280, "height": 1400})
    page.locator("scalar-card").first.wait_for(timeout=90_000)
    page.locator("scalar-card line-chart").first.wait_for(timeout=60_000)
    shown = page.inner_text("main-view, metrics-main-view, card-groups")
    assert "accuracy" in shown
    assert "loss" in shown
    page.wait_for_timeout(1000)  # until its curves have faded in, for the picture
    page.screenshot(path=artefact("tensorboard-scalars"))


def test_the_images_are_there(tensorboard, open_page, artefact):
    assert "val/predictions" in tags(tensorboard, "images")
    page = open_page(f"{tensorboard}#images", viewport={"width": 1280, "height": 900})
    image = page.locator("tf-image-loader img").first
    image.wait_for(timeout=90_000)
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 1
    page.screenshot(path=artefact("tensorboard-images"))


def test_the_hyper_parameters_are_there(tensorboard, open_page, artefact):
    body, kind = b'{"experimentName": ""}', {"Content-Type": "application/json"}
    with urlopen(Request(f"{tensorboard}data/plugin/hparams/experiment", body, kind)) as answer:
        names = [each["name"] for each in json.load(answer).get("hparamInfos", [])]
    assert set(names) == {"lr", "batch_size", "max_epochs"}
    page = open_page(f"{tensorboard}#hparams", viewport={"width": 1280, "height": 900})
    table = page.locator("tf-hparams-table-view")
    for name in names:
        table.get_by_text(name).first.wait_for(timeout=90_000)
    page.screenshot(path=artefact("tensorboard-hparams"))
