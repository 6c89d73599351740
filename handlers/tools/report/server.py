"""`camshaft watch`: the page of runs while they go on, for whoever has the token that it prints."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import re
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, cast

from ...files import budget, printable, regular
from .facts import Picture, RunDirectory, RunFacts, runs_in
from .page import Page, library

LOOPBACK = "127.0.0.1"
THIS_MACHINE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::(\d{1,5}))?", re.IGNORECASE)
"""Any port, since `ssh -L` may forward another one."""
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
    """Serve the page until Ctrl-C; return the exit code."""
    library()  # fails now if plotly is not installed
    if missing := [str(path) for path in paths if not path.is_dir()]:
        text = f"{', '.join(missing)}: not there yet; the page waits for a run to make it"
        print("camshaft:", printable(text), file=sys.stderr)
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
        self._facts: dict[RunDirectory, RunFacts] = {}
        """As they were when the run had changed last."""
        self._images: dict[str, Path] = {}
        self._page: Page | None = None
        self._version = 0
        self._next_look = 0.0

    def now(self) -> tuple[Page, str]:
        """The page, and its version."""
        with self._lock:
            began = time.monotonic()
            if self._page is None or began >= self._next_look:
                changed = [run for run in self._runs if run.look() or run not in self._facts]
                if changed or self._page is None:
                    self._facts |= {run: run.facts() for run in changed}
                    facts = [self._facts[run] for run in self._runs]
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
        self.live_page: LivePage = LivePage(runs)
        self.token: str = secrets.token_hex(16)
        super().__init__((LOOPBACK, port), Answer)

    @property
    def page_address(self) -> str:
        """The address to open in a browser, with the token."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    def is_one(self, given: Iterable[str], name: str) -> bool:
        """True if one of some texts such as `token=...`, of this name, holds the token."""
        wanted = f"{name}={self.token}".encode()
        found = [hmac.compare_digest(each.strip().encode(), wanted) for each in given]
        return any(found)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless a browser went away before it had its answer."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class Answer(BaseHTTPRequestHandler):
    """The answer to one request: the page, its data, an image, or an error that says what to do."""

    server_version: str = "Camshaft"
    sys_version: str = ""
    timeout: ClassVar[float | None] = 30
    """Seconds without a byte."""
    error_message_format = (
        f"{HEAD}<title>%(message)s</title><h1>%(message)s</h1><p>%(explain)s</p></html>"
    )

    def do_GET(self) -> None:
        """Give the page, its data or an image."""
        server = cast(Server, self.server)
        path, _, query = self.path.partition("?")
        host, cookies = self.headers.get("Host", ""), self.headers.get("Cookie", "").split(";")
        # A page of another site may send requests by a name that resolves to this machine.
        if not THIS_MACHINE.fullmatch(host):
            self.send_error(HTTPStatus.FORBIDDEN, explain=ELSEWHERE)
        elif path == "/" and server.is_one([query], "token"):
            # A redirect would lose the cookie if a person came by a link of another site, such as
            # the terminal of a JupyterLab: SameSite=Strict keeps it back until a page of this site
            # asks. So the browser goes to the address without the token by itself.
            cookie = f"{cookie_name(host)}={server.token}; HttpOnly; SameSite=Strict; Path=/"
            headers = {"Set-Cookie": cookie, "Cache-Control": "no-store", "Refresh": "0; url=/"}
            self._send("text/html; charset=utf-8", WELCOME.encode(), headers)
        elif not server.is_one(cookies, cookie_name(host)):
            self.send_error(HTTPStatus.FORBIDDEN, explain=NO_TOKEN)
        elif image := server.live_page.image(path):
            self._send("image/png", image, _kept_as(f'"{path}"'))
        elif path == "/":
            self._show(server.live_page, "text/html", Page.html)
        elif path == "/data.json":
            self._show(server.live_page, "application/json", lambda page: json.dumps(page.news()))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        """Give the headers of the same answer."""
        self.do_GET()

    def end_headers(self) -> None:
        """Add the headers that every response has, errors included."""
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: an address may hold the token."""

    def _show(self, live: LivePage, kind: str, make: Callable[[Page], str]) -> None:
        """Send the current view of the runs, unless the browser has it already."""
        try:
            page, version = live.now()
            is_known = self.headers.get("If-None-Match") == version
            body = None if is_known else make(page).encode(errors="replace")
        except (OSError, TypeError, ValueError) as error:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, explain=printable(str(error)))
            return
        self._send(f"{kind}; charset=utf-8", body, _kept_as(version))

    def _send(self, kind: str, body: bytes | None, headers: dict[str, str]) -> None:
        """Send an answer; without a body, the browser has it already."""
        self.send_response(HTTPStatus.NOT_MODIFIED if body is None else HTTPStatus.OK)
        if body is not None:
            headers |= {"Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if body is not None and self.command != "HEAD":
            # In pieces, since the time-out is for each: a page may take minutes through ssh.
            shutil.copyfileobj(io.BytesIO(body), self.wfile)


def cookie_name(host: str) -> str:
    """The name of the cookie, with the port as the browser sees it.

    A browser sends a cookie to every port of a host, so two servers need two names. Two servers
    that `ssh` forwards may listen on one port of two machines: only the browser's ports differ.
    """
    found = THIS_MACHINE.fullmatch(host)
    return f"camshaft-{(found and found[1]) or 80}"


def _kept_as(version: str) -> dict[str, str]:
    """The headers by which a browser keeps an answer, and asks whether there is a newer one."""
    return {"Cache-Control": "no-cache", "ETag": version}
