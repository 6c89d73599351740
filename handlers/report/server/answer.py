"""The answer to one request: the page, its data, an image; or an error that says what to do."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

from ...files import printable
from ..page import page
from .access import is_this_machine
from .connections import Head, Server

FORBIDDEN = HTTPStatus.FORBIDDEN
ELSEWHERE = "This page is shown at 127.0.0.1 and localhost alone."
NO_TOKEN = (
    "This page needs its token. Open the whole address that camshaft watch printed when it was "
    "started last: http://127.0.0.1:PORT/?token=... (of a port that ssh forwards, with that port)."
)
HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,">'
WELCOME = f'{HEAD}<title>Camshaft</title><a href="/">To the page</a></html>'


class Answer(BaseHTTPRequestHandler):
    """One request."""

    server_version, sys_version = "Camshaft", ""
    timeout = 30
    """Seconds without a byte."""
    rbufsize = 0
    error_message_format = (
        f"{HEAD}<title>%(message)s</title><h1>%(message)s</h1><p>%(explain)s</p></html>"
    )

    def setup(self) -> None:
        """Bound what is read of a request."""
        super().setup()
        self.rfile = Head(cast(io.RawIOBase, self.rfile))

    def do_GET(self) -> None:
        """Give the page, its data or an image."""
        server = cast(Server, self.server)
        server.has_asked(self.connection)
        path, _, query = self.path.partition("?")
        host = self.headers.get("Host", "")
        if not is_this_machine(host):
            self.send_error(FORBIDDEN, explain=ELSEWHERE)
        elif path == "/" and server.access.opens(query):
            self._welcome(server.access.cookie(host))
        elif not server.access.knows(host, self.headers.get("Cookie", "")):
            self.send_error(FORBIDDEN, explain=NO_TOKEN)
        elif image := server.view.image(path):
            self._send("image/png", image, f'"{path}"')
        else:
            self._show(path)

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
        self._body("text/html; charset=utf-8", WELCOME.encode())

    def _show(self, path: str) -> None:
        """Give what the runs show now, unless the browser has it already."""
        view = cast(Server, self.server).view
        answers: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
            "/": ("text/html", partial(page, view.names, is_live=True)),
            "/data.json": ("application/json", partial(json.dumps, allow_nan=False)),
        }
        if path not in answers:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            shown, version = view.news()
        except (OSError, TypeError, ValueError) as error:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, explain=printable(str(error)))
            return
        if self.headers.get("If-None-Match") == version:
            self._begin(HTTPStatus.NOT_MODIFIED, version)
            self.end_headers()
            return
        kind, make = answers[path]
        self._send(f"{kind}; charset=utf-8", make(shown).encode(errors="replace"), version)

    def _send(self, kind: str, body: bytes, version: str) -> None:
        self._begin(HTTPStatus.OK, version)
        self._body(kind, body)

    def _begin(self, status: HTTPStatus, version: str) -> None:
        self.send_response(status)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("ETag", version)

    def _body(self, kind: str, body: bytes) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            # In pieces, since the time-out is for each: a page may take minutes through ssh.
            shutil.copyfileobj(io.BytesIO(body), self.wfile)
