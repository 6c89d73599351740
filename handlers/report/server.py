"""`camshaft watch`: a server of the page of a run, for the browsers of this machine only."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ..files import regular
from .facts import MOST_BYTES, Picture, Run, runs_in
from .page import library, news, page

ADDRESS = "127.0.0.1"
IDLE = 9
"""After each look at the files, the server leaves them alone for this many times as long."""


def watch(paths: list[Path], port: int) -> int:
    """Serve the page until Ctrl-C; return the exit code.

    Raises:
        ImportError: plotly is not installed.
        OSError: The port is taken.
    """
    library()  # fails now if plotly is not installed
    with make_server(paths, port) as server:
        print(f"http://{ADDRESS}:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return 0


def make_server(paths: list[Path], port: int = 0) -> ThreadingHTTPServer:
    """A server of the page, at `/`, and its data, at `/data.json`, on this machine's loopback.

    It answers GET and HEAD. Of all files it serves only the images that the page shows, by
    addresses that hold no path. It refuses requests by any other host name, so no page of
    another site can read the data through a name that resolves to this machine.
    """
    return Server((ADDRESS, port), partial(Answer, View(runs_in(paths))))


class Server(ThreadingHTTPServer):
    """A thread for each request."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless a browser went away before it had its answer."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class View:
    """What the runs show now, read on request, and never more often than is cheap."""

    def __init__(self, runs: list[Run]) -> None:
        self.names = [run.name for run in runs]
        self._runs = runs
        self._lock = threading.Lock()
        self._images: dict[str, Path] = {}
        self._news: dict[str, Any] = {}
        self._version = 0
        self._next = 0.0

    def news(self) -> tuple[dict[str, Any], str]:
        """What the runs show, and its version."""
        with self._lock:
            began = time.monotonic()
            if began >= self._next:
                looks = [run.look() for run in self._runs]
                if any(looks) or not self._news:
                    self._news = news(self._runs, self._address, is_live=True)
                    self._version += 1
                ended = time.monotonic()
                self._next = ended + IDLE * (ended - began)
            return self._news, f'"{id(self):x}-{self._version}"'

    def image(self, address: str) -> bytes | None:
        """The image that a page has found at this address; None for any other address."""
        if path := self._images.get(address):
            with suppress(OSError), regular(path) as file:
                return file.read(MOST_BYTES)
        return None

    def _address(self, picture: Picture) -> str:
        """An address of the image as it is now; only images of pages that were served have one."""
        told = f"{picture.path}\0{picture.size}".encode(errors="surrogateescape")
        address = f"image/{hashlib.sha256(told).hexdigest()[:20]}.png"
        self._images[f"/{address}"] = picture.path
        return address


class Answer(BaseHTTPRequestHandler):
    """One request."""

    server_version, sys_version = "Camshaft", ""
    timeout = 30

    def __init__(self, view: View, *arguments: Any) -> None:
        self._view = view
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Give the page or its data."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Give their headers."""
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests."""

    def _answer(self, *, with_body: bool) -> None:
        address: Any = self.server.server_address
        known = {f"{name}:{address[1]}" for name in (ADDRESS, "localhost")}
        if self.headers.get("Host") not in known:
            self.send_error(HTTPStatus.FORBIDDEN, "this page is for this machine alone")
            return
        answers: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
            "/": ("text/html", partial(page, self._view.names, is_live=True)),
            "/data.json": ("application/json", partial(json.dumps, allow_nan=False)),
        }
        if image := self._view.image(self.path):
            self._send("image/png", image, f'"{self.path}"', with_body=with_body)
            return
        if self.path not in answers:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        shown, version = self._view.news()
        if self.headers.get("If-None-Match") == version:
            self._begin(HTTPStatus.NOT_MODIFIED, version)
            self.end_headers()
            return
        kind, make = answers[self.path]
        body = make(shown).encode(errors="replace")
        self._send(f"{kind}; charset=utf-8", body, version, with_body=with_body)

    def _send(self, kind: str, body: bytes, version: str, *, with_body: bool) -> None:
        self._begin(HTTPStatus.OK, version)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _begin(self, status: HTTPStatus, version: str) -> None:
        self.send_response(status)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("ETag", version)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
