"""`camshaft watch` in a real browser, while a run goes on."""

import json
import threading

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
        assert page.inner_text("#live") == "live"
        page.screenshot(path=artefact("watch"), full_page=True)

    engine.run(range(100), max_epochs=3)
    page.until(f"{POINTS} >= 300")
    page.wait_for_selector("#summary .completed", timeout=60_000)
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
    page.get_by_label("Logarithmic values").check()
    page.evaluate(f"Plotly.relayout({PLOT}, 'xaxis.range', [5, 9])")
    page.evaluate("scrollTo(0, 333)")
    grow(tmp_path / "run", 50, 60)
    page.until(f"{POINTS} == 59")
    assert page.evaluate(f"{PLOT}._fullLayout.xaxis.range") == [5, 9]
    assert page.evaluate("scrollY") == 333
    assert page.get_by_label("Logarithmic values").is_checked()
    assert page.complaints == []


def test_it_says_when_the_connection_is_lost(server, open_page, tmp_path):
    grow(tmp_path / "run", 1, 5)
    page = open_page(address(server))
    page.until("document.getElementById('live').textContent == 'live'")
    server.stop()
    page.until("document.getElementById('live').textContent.startsWith('the connection is lost')")
    assert page.evaluate(POINTS) == 4
