"""The server's connections: a thread for each, and at most so many."""

from __future__ import annotations

import io
import socket
import sys
from contextlib import suppress
from http.client import LineTooLong
from http.server import ThreadingHTTPServer
from threading import BoundedSemaphore
from typing import Any

from .access import Access
from .view import View

ADDRESS = "127.0.0.1"
MOST_CONNECTIONS = 32
"""Far more than browsers open for one page."""
MOST_BYTES = 2**17
"""Of a request: its first line and its headers, each of which `http.server` bounds too."""


class Server(ThreadingHTTPServer):
    """At most `MOST_CONNECTIONS` threads; whoever is slowest to ask gives way to the next.

    So connections that never ask, or send a byte now and then, keep nobody from the page.
    """

    daemon_threads = True
    request_queue_size = 128
    """Connections that wait in the kernel, which turns more of them away for a second."""

    def __init__(self, port: int, answer: Any, view: View) -> None:
        self.view, self.access = view, Access()
        self._places = BoundedSemaphore(MOST_CONNECTIONS)
        self._asking: dict[Any, None] = {}  # connections without a whole request, the oldest first
        super().__init__((ADDRESS, port), answer)

    @property
    def page_address(self) -> str:
        """The address to open in a browser, with the token."""
        return f"http://{ADDRESS}:{self.server_port}/?token={self.access.token}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection; without a place for it, close the slowest, or itself."""
        if not self._places.acquire(blocking=False):
            for slowest in list(self._asking)[:1]:
                with suppress(OSError):
                    slowest.shutdown(socket.SHUT_RDWR)  # its thread reads an end, and ends
            if not self._places.acquire(timeout=1):
                self.shutdown_request(request)
                return
        self._asking[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, and give its place to another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def has_asked(self, request: Any) -> None:
        """Keep a connection, whose request is whole, until it has its answer."""
        self._asking.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless a browser went away before it had its answer."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)

    def _leave(self, request: Any) -> None:
        self._asking.pop(request, None)
        self._places.release()


class Head(io.BufferedReader):
    """The first line and the headers of a request, up to `MOST_BYTES` together."""

    def __init__(self, connection: io.RawIOBase) -> None:
        super().__init__(connection)
        self._left = MOST_BYTES

    def readline(self, size: int | None = -1, /) -> bytes:
        """The next line.

        Raises:
            LineTooLong: The request has too many bytes; `http.server` answers with status 431.
        """
        line = super().readline(size)
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("headers")
        return line
