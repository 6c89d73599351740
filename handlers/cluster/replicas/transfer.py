"""What one replica gives to another over TCP: named bytes, and nothing that could run."""

from __future__ import annotations

import json
import socket
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Condition, Thread
from typing import Any

LONGEST = 2**24
"""The most bytes of a header: the names and sizes of what follows."""
BLOCK = 2**20
ALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
"""After 10 s of silence, three questions whether the other machine is there, 5 s apart."""

Key = tuple[str, int]
"""What is offered, such as the run, and the iteration that it is of."""
Parts = Mapping[str, bytes | bytearray | memoryview]
"""Bytes by name."""


class Lost(Exception):  # noqa: N818
    """Another replica has gone, or does not answer; the step is tried again without it."""


class Shelf:
    """Offers named bytes to other replicas, at one address of this machine."""

    def __init__(self, address: str, timeout: float) -> None:
        """Listen at a free port of `address`."""
        self._offers: dict[Key, Callable[[], Parts]] = {}
        self._changed, self._timeout = Condition(), timeout
        self._served: dict[Key, int] = {}
        self._socket = socket.create_server((address, 0))
        host, port = self._socket.getsockname()[:2]
        self.place: str = f"{host}:{port}"
        """The address and the port."""
        Thread(target=self._listen, name="replicas", daemon=True).start()

    def offer(self, key: Key, make: Callable[[], Parts]) -> None:
        """Give what `make` makes to whoever asks for it, and no older offer of this kind."""
        with self._changed:
            for old in [old for old in self._offers if old[0] == key[0]]:
                del self._offers[old]
            self._offers[key] = make
            self._changed.notify_all()

    def withdraw(self, kind: str) -> None:
        """Free the memory of offers that nobody needs."""
        with self._changed:
            for old in [old for old in self._offers if old[0] == kind]:
                del self._offers[old]

    def await_served(self, key: Key, count: int, most: float) -> None:
        """Wait until so many replicas have got an offer, at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._served.get(key, 0) >= count, most)

    def close(self) -> None:
        """Offer nothing any more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that listens
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError):  # the other one sees the connection close
            connection.settimeout(self._timeout)
            kind, number = json.loads(_received_header(connection))
            connection.settimeout(None)
            key: Key = (str(kind), int(number))
            with self._changed:
                limit = None if kind == "end" else self._timeout
                if not self._changed.wait_for(lambda: key in self._offers, limit):
                    return
                make = self._offers[key]
            _send(connection, make())
            with self._changed:
                self._served[key] = self._served.get(key, 0) + 1
                self._changed.notify_all()


def received_from(place: str, key: Key, timeout: float | None) -> dict[str, bytearray]:
    """What a replica offers at this place.

    Raises:
        Lost: It has gone, does not offer this, or the bytes are not what it sent.
    """
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=timeout) as connection:
            for option, value in ALIVE:  # a machine that is switched off closes no connection
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            _send_header(connection, json.dumps(key).encode())
            header = json.loads(_received_header(connection))
            found = {str(name): _received(connection, int(size)) for name, size, _ in header}
    except (OSError, ValueError) as error:
        raise Lost(f"{place} did not give its {key[0]}: {error}") from error
    if any(zlib.crc32(found[name]) != crc for name, _, crc in header):
        raise Lost(f"{place} gave its {key[0]}, and the bytes do not have their checksum")
    return found


def _send(connection: socket.socket, parts: Parts) -> None:
    header: list[Any] = [[name, len(each), zlib.crc32(each)] for name, each in parts.items()]
    _send_header(connection, json.dumps(header).encode())
    for each in parts.values():
        connection.sendall(each)


def _send_header(connection: socket.socket, content: bytes) -> None:
    connection.sendall(len(content).to_bytes(8, "little") + content)


def _received_header(connection: socket.socket) -> bytes:
    size = int.from_bytes(_received(connection, 8), "little")
    if size > LONGEST:
        raise ValueError(f"a header of {size} bytes")
    return bytes(_received(connection, size))


def _received(connection: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    view, got = memoryview(content), 0
    while got < size:
        count = connection.recv_into(view[got:], min(BLOCK, size - got))
        if not count:
            raise ConnectionError("the connection was closed")
        got += count
    return content
