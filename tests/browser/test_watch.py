"""`camshaft watch` and TensorBoard, with what the loggers wrote, in a real browser."""

import json
import re
import subprocess
import sys
import threading
from urllib.request import Request, urlopen

import pytest

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Journal, JSONLines
from camshaft.handlers.report import make_server


@pytest.fixture
def server(tmp_path):
    made = make_server([tmp_path / "run"])
    thread = threading.Thread(target=made.serve_forever, args=[0.05])
    thread.start()
    made.stop = lambda: (made.shutdown(), made.server_close(), thread.join())
    yield made
    made.stop()


def address(server):
    return f"http://127.0.0.1:{server.server_port}/"


def grow(directory, first, end):
    directory.mkdir(exist_ok=True)
    with (directory / "rows.jsonl").open("a") as file:
        for iteration in range(first, end):
            row = {"iteration": iteration, "epoch": 1, "loss": 1 / iteration, "other": iteration}
            file.write(json.dumps(row) + "\n")


PLOT = "document.querySelector('.js-plotly-plot')"
POINTS = f"{PLOT}?.data[0].x.length"


def test_it_waits_for_a_run_and_shows_it_as_it_goes_on(server, open_page, tmp_path, artefact):
    page = open_page(address(server))
    assert "Waiting for the run to begin" in page.inner_text("main")
    assert page.locator("main section:visible, #controls:visible").count() == 0
    page.screenshot(path=artefact("watch-waiting"))

    def step(state, batch):
        state.metrics["loss"] = 1 / state.iteration

    engine = Engine(step).add(
        Journal(tmp_path / "run", config={"lr": 0.1}),
        JSONLines(tmp_path / "run" / "rows.jsonl", when=Events.ITERATION_COMPLETED),
        Checkpoint(tmp_path / "run"),
    )

    @engine.on(Events.ITERATION_COMPLETED(at=150))
    def look(state):
        page.until(f"{POINTS} >= 149")
        assert "running" in page.inner_text("#summary")
        assert page.locator("progress").get_attribute("value") == "100"
        assert page.inner_text("#live") == "running"
        assert page.title() == "running · run: Camshaft"
        page.screenshot(path=artefact("watch"), full_page=True)

    engine.run(range(100), max_epochs=3)
    page.until(f"{POINTS} >= 300")
    page.wait_for_selector("#summary .completed", timeout=60_000)
    assert page.inner_text("#live") == "finished"
    assert page.title() == "finished · run: Camshaft"
    assert "iteration-0000000300" in page.inner_text("#checkpoints")
    assert page.complaints == []
    assert {url.split("?")[0] for url in page.asked} == {
        address(server),
        address(server) + "data.json",
    }


def test_new_rows_leave_zoom_scroll_and_switches_as_they_are(server, open_page, tmp_path):
    grow(tmp_path / "run", 1, 50)
    page = open_page(address(server), viewport={"width": 900, "height": 400})
    page.until(f"{POINTS} == 49")
    page.get_by_label("Log y").check()
    page.evaluate(f"Plotly.relayout({PLOT}, 'xaxis.range', [5, 9])")
    page.evaluate("scrollTo(0, 333)")
    grow(tmp_path / "run", 50, 60)
    page.until(f"{POINTS} == 59")
    assert page.evaluate(f"{PLOT}._fullLayout.xaxis.range") == [5, 9]
    assert page.evaluate("scrollY") == 333
    assert page.get_by_label("Log y").is_checked()
    assert page.complaints == []


def test_it_says_when_the_connection_is_lost(server, open_page, tmp_path):
    grow(tmp_path / "run", 1, 5)
    page = open_page(address(server))
    page.until("document.getElementById('live').textContent == 'no journal'")
    server.stop()
    page.until("document.getElementById('live').textContent.startsWith('the connection is lost')")
    assert page.evaluate(POINTS) == 4


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
