"""`camshaft watch`: a page for this machine alone, which nobody can write to."""

import json
import re
import signal
import socket
import threading
import time

import pytest

from camshaft.handlers.tools.report.facts import runs_in
from camshaft.handlers.tools.report.server import LivePage, make_server


def grow(tmp_path, iteration):
    (tmp_path / "run").mkdir(parents=True, exist_ok=True)
    with (tmp_path / "run" / "rows.jsonl").open("a") as file:
        file.write(json.dumps({"iteration": iteration, "loss": 1}) + "\n")


def test_a_run_that_has_not_begun_has_a_page_that_waits_and_then_shows_it(ask, tmp_path):
    answer, body = ask()
    assert answer.status == 200
    assert b'data-live="true"' in body
    grow(tmp_path, 1)
    assert poll(ask, lambda news: "curve loss" in news["figures"]) == [1]


def poll(ask, wanted):
    """The iterations of the curve of the loss, once the server shows what is wanted."""
    for _ in range(1000):
        answer, body = ask("/data.json")
        assert answer.getheader("Content-Type") == "application/json; charset=utf-8"
        if wanted(news := json.loads(body)):
            return news["figures"]["curve loss"]["data"][0]["x"]
    raise AssertionError(news)


def test_who_has_the_newest_data_is_told_so_in_few_bytes(ask, tmp_path):
    grow(tmp_path, 1)
    answer, _ = ask("/data.json")
    tag = answer.getheader("ETag")
    again, body = ask("/data.json", **{"If-None-Match": tag})
    assert (again.status, body) == (304, b"")
    grow(tmp_path, 2)
    poll(ask, lambda news: news["figures"]["curve loss"]["data"][0]["x"] == [1, 2])
    answer, _ = ask("/data.json", **{"If-None-Match": tag})
    assert answer.status == 200


def test_a_head_has_the_length_and_no_body(ask):
    answer, body = ask("/data.json", "HEAD")
    assert (answer.status, body) == (200, b"")
    assert int(answer.getheader("Content-Length")) > 0


def test_nothing_can_be_written(ask):
    assert [ask("/", method)[0].status for method in ("POST", "PUT", "DELETE")] == [501] * 3


def test_no_file_is_served(ask, tmp_path):
    grow(tmp_path, 1)
    for path in ("/rows.jsonl", "/run/rows.jsonl", "/../rows.jsonl", "//etc/passwd", "/%2e%2e"):
        assert ask(path)[0].status == 404


def test_images_are_served_by_addresses_of_their_own_that_hold_no_path(ask, tmp_path):
    grow(tmp_path, 1)
    folder = tmp_path / "run" / "images" / "val" / "digits"
    folder.mkdir(parents=True)
    (folder / "5.png").write_bytes(b"\x89PNG\r\n\x1a\n and so on")
    (folder / "notes.txt").write_text("secret")
    _, body = ask("/data.json")
    sections = json.loads(body)["sections"]
    (address,) = re.findall(r'src="(image/\w+\.png)"', sections["charts"])
    answer, body = ask(f"/{address}")
    assert (answer.getheader("Content-Type"), body[:4]) == ("image/png", b"\x89PNG")
    for path in ("/image/5.png", "/images/val/digits/5.png", f"/{address}/..", "/image/"):
        assert ask(path)[0].status == 404
    (folder / "5.png").unlink()
    assert ask(f"/{address}")[0].status == 404


def test_a_silent_run_is_told_of_though_no_file_changes(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    journal = tmp_path / "run" / "journal.jsonl"
    now = time.time()
    started = {"event": "started", "time": now, "iteration": 0, "environment": {"host": "far"}}
    journal.write_text(json.dumps(started) + "\n")
    live = LivePage(runs_in([tmp_path / "run"]))
    told = []
    for later in (0, 30, 400, 410):
        monkeypatch.setattr(
            "camshaft.handlers.tools.report.facts.run_facts.time.time", lambda at=later: now + at
        )
        live._next_look = 0
        page, version = live.now()
        told.append((page.news()["status"]["text"], version[-3:]))
    assert told == [
        *(("running", '-1"'), ("running", '-1"')),
        *(("no word for 6 minutes", '-2"'), ("no word for 6 minutes", '-2"')),
    ]


def test_looking_takes_a_tenth_of_the_time_at_most(tmp_path, monkeypatch):
    grow(tmp_path, 1)
    clock = iter([0.0, 10.0, 99.0, 100.0, 101.0])  # a look from 0 to 10; then two requests
    monkeypatch.setattr("camshaft.handlers.tools.report.server.time.monotonic", lambda: next(clock))
    live = LivePage(runs_in([tmp_path / "run"]))
    _, first = live.now()
    grow(tmp_path, 2)
    assert live.now()[1] == first
    assert live.now()[1] != first


def test_a_browser_that_goes_away_is_nothing_to_tell_of(ask, server, capfd):
    for _ in range(5):
        with socket.create_connection(server.server_address) as connection:
            head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\nCookie: {ask.cookie}"
            connection.sendall(f"{head}\r\n\r\n".encode())
            connection.recv(1)  # the page has megabytes
    assert ask()[0].status == 200
    assert capfd.readouterr().err == ""


def test_what_cannot_be_read_is_an_answer_and_no_traceback(tmp_path, visit, capfd):
    with make_server([tmp_path / ("x" * 300)]) as server:  # no file may have such a name
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        cookie = visit(server.page_address).getheader("Set-Cookie")
        answer = visit(f"http://127.0.0.1:{server.server_port}/", Cookie=cookie)
        server.shutdown()
        thread.join()
    assert (answer.status, b"File name too long" in answer.body) == (500, True)
    assert capfd.readouterr().err == ""


WAITS = "camshaft: {}: not there yet; the page waits for a run to make it"


COMMAND = "from camshaft.__main__ import main\nraise SystemExit(main())"


def test_it_prints_its_address_with_a_token_and_ends_cleanly_at_ctrl_c(processes, tmp_path, visit):
    with processes.start(COMMAND, "watch", tmp_path / "run", "--port", "0") as process:
        address = process.stdout.readline().split()[0]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[0-9a-f]{32}", address)
        cookie = visit(address).getheader("Set-Cookie").partition(";")[0]
        root = address.partition("?")[0]
        assert visit(root, Cookie=cookie).status == 200
        for refused in (root, address[:-1], f"{root}nowhere", f"{root}data.json"):
            assert visit(refused).status == 403
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        # There is no log, so no log has the token.
        output, errors = process.communicate()
        assert (output, errors.strip()) == ("", WAITS.format(tmp_path / "run"))


WHILE_A_CONNECTION_IS_OPENED = """
opened = ThreadingMixIn.process_request

def process_request(*arguments):
    opened(*arguments)
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join()
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))  # the interrupt arrives here if this is the main thread

ThreadingMixIn.process_request = process_request
"""
ONCE_THE_ADDRESS_IS_THERE = """
class Address:
    def write(self, text):
        sys.__stdout__.write(text)
    def flush(self):
        sys.stdout = sys.__stdout__
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGINT)

sys.stdout = Address()
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", [WHILE_A_CONNECTION_IS_OPENED, ONCE_THE_ADDRESS_IS_THERE])
def test_ctrl_c_ends_it_cleanly_at_any_moment(processes, tmp_path, visit, when):
    program = (
        "import os, signal, sys, threading\nfrom socketserver import ThreadingMixIn\n"
        f"{when}\n{COMMAND}"
    )
    with processes.start(program, "watch", tmp_path / "run", "--port", "0") as process:
        address = process.stdout.readline().split()[0]
        if when is WHILE_A_CONNECTION_IS_OPENED:
            visit(address)
        assert process.wait(30) == 0
        assert process.communicate()[1].strip() == WAITS.format(tmp_path / "run")


def test_a_port_that_is_taken_is_code_1(camshaft, server, tmp_path):
    code, _, errors = camshaft("watch", tmp_path, "--port", server.server_port)
    assert code == 1
    assert "in use" in errors[0]
