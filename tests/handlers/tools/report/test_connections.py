"""The connections of `camshaft watch`: slow ones, silent ones, and requests that are odd."""

import socket
import time
from contextlib import ExitStack

import pytest


@pytest.fixture
def connect(server):
    """Opens connections to the server, and closes them in the end."""
    with ExitStack() as stack:

        def one(sent=b""):
            made = stack.enter_context(socket.create_connection(server.server_address, timeout=60))
            made.sendall(sent)
            return made

        yield one


def test_a_page_that_is_being_read_is_read_to_its_end_however_slowly(server, ask, monkeypatch):
    monkeypatch.setattr("camshaft.handlers.tools.report.server.Answer.timeout", 0.4)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    host = f"127.0.0.1:{server.server_port}"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so few bytes are under way
        slow.connect(server.server_address)
        slow.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {ask.cookie}\r\n\r\n".encode())
        answer = slow.makefile("rb")
        head = b"".join(iter(answer.readline, b"\r\n"))
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
        (b"GET / HTTP/1.1\r\n" + b"x: 1\r\n" * 200 + b"\r\n", b" 431 "),
        (b"\x16\x03\x01\x02\x00\x01\xfc\r\n\r\n", b"Bad request syntax"),  # TLS
        (b"GET http://[ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b" 403 "),
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
    monkeypatch.setattr("camshaft.handlers.tools.report.server.Answer.timeout", 0.05)
    assert connect(b"GET / HT").recv(1) == b""
