"""`camshaft watch`: the page of runs while they go on, for whoever started the command."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from ..files import budget, printable, regular
from .access import Access, is_this_machine
from .facts import Picture, RunDirectory, runs_in
from .page import Page, library

LOOPBACK = "127.0.0.1"
IDLE = 9
"""After each look at the files, the server leaves them alone for this many times as long."""
ELSEWHERE = "This page is shown at 127.0.0.1 and localhost alone."
NO_TOKEN = (
    "This page needs its token. Open the whole address that camshaft watch printed when it was "
    "started last: http://127.0.0.1:PORT/?token=... (of a port that ssh forwards, with that port)."
)
HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,">'
WELCOME = f'{HEAD}<title>Camshaft</title><a href="/">To the page</a></html>'


def watch(paths: list[Path], port: int) -> int:
    """Serve the page until Ctrl-C; return the exit code.

    Raises:
        ImportError: plotly is not installed.
        OSError: The port is taken.
    """
    library()  # fails now if plotly is not installed
    with make_server(paths, port) as server:
        # Ctrl-C interrupts this thread alone, which does nothing that could be left half done.
        serving = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True
        )
        serving.start()
        try:  # from before anybody can know the address
            print(f"{server.page_address}  (Ctrl-C ends it)", flush=True)
            while serving.is_alive():
                serving.join(1)
        except KeyboardInterrupt:
            print(file=sys.stderr)
        server.shutdown()
    return 0


def make_server(paths: list[Path], port: int = 0) -> Server:
    """A server of the page, at `/`, and its data, at `/data.json`, on this machine's loopback.

    It answers GET and HEAD, of whoever has its token: its `page_address` holds the token, and a
    cookie does after that. Of all files it serves only the images that the page shows, by
    addresses that hold no path. It refuses requests by any other host name, so no page of another
    site can read the data through a name that resolves to this machine.
    """
    return Server(port, runs_in(paths))


class LivePage:
    """The page as the runs are now, made on request, and never more often than is cheap."""

    def __init__(self, runs: list[RunDirectory]) -> None:
        self._runs = runs
        self._lock = threading.Lock()
        self._images: dict[str, Path] = {}
        self._page: Page | None = None
        self._version = 0
        self._next_look = 0.0

    def now(self) -> tuple[Page, str]:
        """The page, and its version."""
        with self._lock:
            began = time.monotonic()
            if self._page is None or began >= self._next_look:
                looks = [run.look() for run in self._runs]
                if any(looks) or self._page is None:
                    facts = [run.facts() for run in self._runs]
                    self._page = Page(facts, self._address, is_live=True)
                    self._version += 1
                ended = time.monotonic()
                self._next_look = ended + IDLE * (ended - began)
            return self._page, f'"{id(self):x}-{self._version}"'

    def image(self, address: str) -> bytes | None:
        """The image that a page has found at this address; None for any other address."""
        if path := self._images.get(address):
            with suppress(OSError), regular(path) as file:
                return file.read(budget.LARGEST_IMAGES)
        return None

    def _address(self, picture: Picture) -> str:
        """An address of the image as it is now; only images of pages that were served have one."""
        text = f"{picture.path}\0{picture.size}".encode(errors="surrogateescape")
        address = f"image/{hashlib.sha256(text).hexdigest()[:20]}.png"
        self._images[f"/{address}"] = picture.path
        return address


class Server(ThreadingHTTPServer):
    """A thread for each connection, on this machine's loopback."""

    daemon_threads = True

    def __init__(self, port: int, runs: list[RunDirectory]) -> None:
        self.live_page, self.access = LivePage(runs), Access()
        super().__init__((LOOPBACK, port), Answer)

    @property
    def page_address(self) -> str:
        """The address to open in a browser, with the token."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.access.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless a browser went away before it had its answer."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class Answer(BaseHTTPRequestHandler):
    """The answer to one request: the page, its data, an image, or an error that says what to do."""

    server_version, sys_version = "Camshaft", ""
    timeout = 30
    """Seconds without a byte."""
    error_message_format = (
        f"{HEAD}<title>%(message)s</title><h1>%(message)s</h1><p>%(explain)s</p></html>"
    )

    def do_GET(self) -> None:
        """Give the page, its data or an image."""
        server = cast(Server, self.server)
        path, _, query = self.path.partition("?")
        host = self.headers.get("Host", "")
        if not is_this_machine(host):
            self.send_error(HTTPStatus.FORBIDDEN, explain=ELSEWHERE)
        elif path == "/" and server.access.opens(query):
            self._welcome(server.access.cookie(host))
        elif not server.access.knows(host, self.headers.get("Cookie", "")):
            self.send_error(HTTPStatus.FORBIDDEN, explain=NO_TOKEN)
        elif image := server.live_page.image(path):
            self._send("image/png", image, f'"{path}"')
        elif path == "/":
            self._show(server.live_page, "text/html", Page.html)
        elif path == "/data.json":
            self._show(server.live_page, "application/json", _news_as_json)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        """Give the headers of the same answer."""
        self.do_GET()

    def end_headers(self) -> None:
        """End the headers with those of every answer, errors too."""
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: an address may hold the token."""

    def _welcome(self, cookie: str) -> None:
        """Put the token into a cookie, and let the browser go to the address without the token.

        A redirect would lose the cookie if a person came by a link of another site, such as the
        terminal of a JupyterLab: SameSite=Strict keeps it back until a page of this site asks.
        """
        self.send_response(HTTPStatus.OK)
        self.send_header("Set-Cookie", cookie)
        self.send_header("Refresh", "0; url=/")
        self.send_header("Cache-Control", "no-store")
        self._send_body("text/html; charset=utf-8", WELCOME.encode())

    def _show(self, live: LivePage, kind: str, make: Callable[[Page], str]) -> None:
        """Give what the runs show now, unless the browser has it already."""
        try:
            page, version = live.now()
            is_known = self.headers.get("If-None-Match") == version
            body = b"" if is_known else make(page).encode(errors="replace")
        except (OSError, TypeError, ValueError) as error:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, explain=printable(str(error)))
            return
        if is_known:
            self._begin(HTTPStatus.NOT_MODIFIED, version)
            self.end_headers()
        else:
            self._send(f"{kind}; charset=utf-8", body, version)

    def _send(self, kind: str, body: bytes, version: str) -> None:
        self._begin(HTTPStatus.OK, version)
        self._send_body(kind, body)

    def _begin(self, status: HTTPStatus, version: str) -> None:
        self.send_response(status)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("ETag", version)

    def _send_body(self, kind: str, body: bytes) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            # In pieces, since the time-out is for each: a page may take minutes through ssh.
            shutil.copyfileobj(io.BytesIO(body), self.wfile)


def _news_as_json(page: Page) -> str:
    return json.dumps(page.news(), allow_nan=False)
