"""The connections of `camshaft watch`: few, and whoever is slow keeps nobody from the page."""

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from camshaft.handlers.report.server.connections import MOST_CONNECTIONS


@pytest.fixture
def connect(server):
    """Opens connections to the server, and closes them in the end."""
    with ExitStack() as stack:

        def one(sent=b""):
            made = stack.enter_context(socket.create_connection(server.server_address, timeout=60))
            made.sendall(sent)
            return made

        yield one


def answers():
    """The threads that answer a connection."""
    return [each for each in threading.enumerate() if "process_request_thread" in each.name]


def test_connections_that_never_ask_keep_nobody_from_the_page(ask, connect):
    idle = [connect(b"GET / HTTP/1.1\r\n") for _ in range(3 * MOST_CONNECTIONS)]
    before = time.monotonic()
    assert ask("/data.json")[0].status == 200
    assert time.monotonic() - before < 5
    assert len(answers()) <= MOST_CONNECTIONS
    assert idle[0].recv(1) == b""  # the oldest has given way
    for each in idle:
        each.close()
    while answers():
        time.sleep(0.01)
    assert ask("/data.json")[0].status == 200


def test_who_sends_a_byte_now_and_then_gives_way_first_and_others_get_their_answer(ask, connect):
    slow = [connect() for _ in range(2 * MOST_CONNECTIONS)]
    for byte in b"GET":
        for each in slow[MOST_CONNECTIONS + 1 :]:
            each.sendall(bytes([byte]))
        assert ask("/data.json")[0].status == 200


def test_a_page_that_is_being_read_is_read_to_its_end_however_slowly(
    server, ask, connect, monkeypatch
):
    monkeypatch.setattr("camshaft.handlers.report.server.answer.Answer.timeout", 0.4)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    host = f"127.0.0.1:{server.server_port}"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so few bytes are under way
        slow.connect(server.server_address)
        slow.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {ask.cookie}\r\n\r\n".encode())
        answer = slow.makefile("rb")
        head = b"".join(iter(answer.readline, b"\r\n"))
        for _ in range(2 * MOST_CONNECTIONS):
            connect(b"GET")
        length = int(head.partition(b"Content-Length: ")[2].split()[0])
        began, read = time.monotonic(), 0
        while data := answer.read(length // 40):
            read += len(data)
            time.sleep(0.02)
        assert time.monotonic() - began > 0.4  # the time-out is for a piece, not for the page
        assert read == length


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b" 414 "),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * 70_000 + b"\r\n\r\n", b" 431 "),
        (b"GET / HTTP/1.1\r\n" + b"x: 1\r\n" * 200 + b"\r\n", b" 431 "),
        (b"GET / HTTP/1.1\r\n" + (b"x: " + b"y" * 60_000 + b"\r\n") * 4 + b"\r\n", b" 431 "),
        (b"GET\r\n\r\n", b"Bad request syntax"),
        (b"\x16\x03\x01\x02\x00\x01\xfc\r\n\r\n", b"Bad request syntax"),  # TLS
        (b"GET http://[ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b" 403 "),
        (b"GET //[ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b" 403 "),
        (b"GET / HTTP/1.1\r\nHost: \xff\x00\r\nCookie: \xff=\x00\r\n\r\n", b" 403 "),
        (b"TRACE / HTTP/1.1\r\n\r\n", b" 501 "),
    ],
)
def test_a_request_that_is_too_long_or_odd_gets_an_error_and_leaves_no_trace(
    connect, capfd, sent, status
):
    answer = connect(sent).makefile("rb").read()
    assert status in answer, answer
    assert capfd.readouterr().err == ""


def test_who_says_nothing_is_let_go(server, connect, monkeypatch):
    monkeypatch.setattr("camshaft.handlers.report.server.answer.Answer.timeout", 0.05)
    assert connect(b"GET / HT").recv(1) == b""


@pytest.mark.slow
def test_a_flood_of_connections_leaves_the_process_with_few_threads_files_and_bytes(
    tmp_path, visit
):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"iteration": 1, "loss": 1}) + "\n")
    command = [sys.executable, "-m", "camshaft", "watch", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        address = process.stdout.readline().decode().split()[0]
        cookie = visit(address).getheader("Set-Cookie").partition(";")[0]
        root = address.partition("?")[0]
        port = int(root.split(":")[2].strip("/"))
        visit(root, Cookie=cookie)
        system = Path(f"/proc/{process.pid}")
        most = {"threads": 0, "files": 0}
        with ExitStack() as stack:
            for number in range(1500):
                made = socket.create_connection(("127.0.0.1", port), timeout=60)
                stack.enter_context(made)
                made.sendall(b"GET / HTTP/1.1\r\nx: " + b"x" * 60_000 * (number % 2))
                if number % 100 == 99:
                    assert visit(root + "data.json", Cookie=cookie).status == 200
                    threads = len(list((system / "task").iterdir()))
                    files = len(list((system / "fd").iterdir()))
                    most = {
                        "threads": max(most["threads"], threads),
                        "files": max(most["files"], files),
                    }
            status = dict(
                line.split(":", 1) for line in (system / "status").read_text().splitlines()
            )
        process.terminate()
    assert most["threads"] <= MOST_CONNECTIONS + 5
    assert most["files"] <= MOST_CONNECTIONS + 15
    assert int(status["VmHWM"].split()[0]) < 200_000  # kB
