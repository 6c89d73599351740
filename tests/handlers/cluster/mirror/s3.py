"""A real S3 server (moto's) in a process of its own, and a proxy before it that fails on order."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate."
    b"</Message></Error>"
)
DENIALS = {
    "read only": b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>",
    "expired": b"<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>",
}
HOPS = {"connection", "transfer-encoding", "content-length", "date", "server"}


@contextmanager
def server():
    """Its port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [Path(sys.executable).with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    log = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while True:
            assert process.poll() is None
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


class Proxy(ThreadingHTTPServer):
    """Hands requests on to the server, unless `fault` says what to do instead."""

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.port_behind = port
        self.fault = lambda request: None
        """Called with "PUT /bucket/key": "slow down", "hang", "truncate", "forget", or None."""
        self.requests = []
        self.key = None
        """The name of the credentials of the last request."""
        self.going = Event()
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """Do nothing: a client that was killed hangs up."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def hand_on(self):
        request = f"{self.command} {self.path}"
        self.server.requests.append(request)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = re.search("Credential=([^/]+)/", self.headers.get("Authorization", ""))
        self.server.key = found and found[1]
        fault = self.server.fault(request)
        if fault == "hang":
            self.server.going.wait(60)
            self.close_connection = True
            return
        if fault == "slow down":
            self.answer(503, {"Content-Type": "application/xml"}, SLOW_DOWN)
            return
        if fault in DENIALS:
            self.answer(403, {"Content-Type": "application/xml"}, DENIALS[fault])
            return
        if fault == "forget":  # an answer as if it were done
            self.answer(200, {"ETag": '"0"'}, b"")
            return
        connection = HTTPConnection("127.0.0.1", self.server.port_behind, timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers))
        response = connection.getresponse()
        content = response.read()
        headers = {k: v for k, v in response.getheaders() if k.lower() not in HOPS}
        if self.command == "HEAD":
            headers["Content-Length"] = response.getheader("Content-Length", "0")
        if fault == "change":
            content = bytes(len(content))
        self.answer(response.status, headers, content)
        connection.close()

    def answer(self, status, headers, content):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = hand_on  # noqa: N815

    def log_message(self, *args):
        """Say nothing."""


def environment(url):
    """How the libraries find the server: by boto's own variables."""
    return {
        **os.environ,
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "hush-hush",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
