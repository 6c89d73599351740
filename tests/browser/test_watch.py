"""`camshaft watch` and TensorBoard, with what the loggers wrote, in a real browser."""

import json
import re
import socket
import socketserver
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from urllib.request import Request, urlopen

import pytest

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Journal, JSONLines
from camshaft.handlers.tools.report import make_server


@pytest.fixture
def server(tmp_path):
    made = make_server([tmp_path / "run"])
    thread = threading.Thread(target=made.serve_forever, args=[0.05], daemon=True)
    thread.start()
    made.stop = lambda: (made.shutdown(), made.server_close(), thread.join())
    yield made
    made.stop()


def grow(directory, first, end):
    directory.mkdir(exist_ok=True)
    with (directory / "rows.jsonl").open("a") as file:
        for iteration in range(first, end):
            row = {"iteration": iteration, "epoch": 1, "loss": 1 / iteration, "other": iteration}
            file.write(json.dumps(row) + "\n")


PLOT = "document.querySelector('.js-plotly-plot')"
POINTS = f"{PLOT}?.data[0].x.length"


@pytest.mark.slow
def test_it_waits_for_a_run_and_shows_it_as_it_goes_on(server, open_page, tmp_path, artefact):
    page = open_page(server.page_address)
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
    root = f"http://127.0.0.1:{server.server_port}/"
    assert {*page.asked} == {server.page_address, root, f"{root}data.json"}


@pytest.mark.slow
def test_new_rows_leave_zoom_scroll_and_switches_as_they_are(server, open_page, tmp_path):
    grow(tmp_path / "run", 1, 50)
    page = open_page(server.page_address, viewport={"width": 900, "height": 400})
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


@pytest.mark.slow
def test_the_token_leaves_the_address_and_the_cookie_is_for_this_server_alone(
    server, open_page, tmp_path
):
    grow(tmp_path / "run", 1, 5)
    page = open_page(server.page_address)
    page.until(f"{POINTS} == 4")
    root = f"http://127.0.0.1:{server.server_port}/"
    assert page.url == root
    assert page.evaluate("[document.cookie, document.referrer, history.length]") == ["", "", 2]
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
    with make_server([tmp_path / "run"]) as second:
        thread = threading.Thread(target=second.serve_forever, args=[0.05], daemon=True)
        thread.start()
        other = page.context.new_page()
        other.goto(f"http://127.0.0.1:{second.server_port}/")
        assert "Open the whole address that camshaft watch printed" in other.inner_text("body")
        other.goto(second.page_address)
        other.wait_for_url(f"http://127.0.0.1:{second.server_port}/")
        page.reload()  # each of two servers has its own cookie
        assert page.inner_text("h1") == other.inner_text("h1") == "run"
        second.shutdown()
        thread.join()
    assert page.complaints == []


@pytest.mark.slow
def test_it_is_shown_through_a_forwarded_port_by_a_link_of_another_site_and_lives_on(
    server, open_page, tmp_path
):
    grow(tmp_path / "run", 1, 5)
    with forwarded(server.server_port) as port:
        page = open_page(f"http://localhost:{port}/")  # another site than 127.0.0.1
        assert page.title() == "Forbidden"
        link = server.page_address.replace(f":{server.server_port}/", f":{port}/")
        page.evaluate(f"document.body.innerHTML = '<a href=\"{link}\">a terminal in a page</a>'")
        page.click("a")
        page.wait_for_url(f"http://127.0.0.1:{port}/")
        page.until(f"window.Plotly && {POINTS} == 4")
        assert page.url == f"http://127.0.0.1:{port}/"
        assert [cookie["name"] for cookie in page.context.cookies()] == [f"camshaft-{port}"]
        grow(tmp_path / "run", 5, 9)
        page.until(f"{POINTS} == 8")
        page.reload()
        page.until(f"{POINTS} == 8")


@contextmanager
def forwarded(port):
    """Another port of this machine, forwarded to this one as ssh does."""

    class Forward(socketserver.BaseRequestHandler):
        def handle(self):
            with socket.create_connection(("127.0.0.1", port)) as there:
                back = threading.Thread(target=pump, args=[there, self.request], daemon=True)
                back.start()
                pump(self.request, there)
                back.join()

    def pump(one, other):
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Forward) as made:
        made.daemon_threads = True
        thread = threading.Thread(target=made.serve_forever, args=[0.05], daemon=True)
        thread.start()
        yield made.server_address[1]
        made.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_page_of_a_server_that_was_started_again_says_what_to_open(server, open_page, tmp_path):
    grow(tmp_path / "run", 1, 5)
    page = open_page(server.page_address)
    page.until("document.getElementById('live').textContent == 'no journal'")
    server.token = 32 * "0"
    page.until("document.getElementById('live').textContent.endsWith('that it printed')")
    assert page.evaluate(POINTS) == 4
    page.reload()
    assert "needs its token" in page.inner_text("body")


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


@pytest.mark.slow
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


@pytest.mark.slow
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
