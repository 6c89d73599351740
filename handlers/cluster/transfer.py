"""What one process gives to another over TCP: named bytes with checksums, nothing that could run.

Who has something offers it and goes on; who needs it asks for it. So nobody waits for a receiver,
and whoever is gone closes its connections, which the other one sees at once.
"""

from __future__ import annotations

import json
import socket
import zlib
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import ExitStack, closing, suppress
from io import SEEK_END, BytesIO
from pathlib import Path
from threading import Condition, Thread
from typing import IO

from ..files import created, regular, synchronise

LONGEST = 2**26
"""The most bytes of a header: the names and sizes of what follows."""
BLOCK = 2**20
ALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
"""After 10 s of silence, three questions whether the other machine is there, 5 s apart."""

Key = tuple[str, int | str]
"""What is offered, such as the run, and which one, such as the iteration that it is of."""
Parts = Mapping[str, bytes | Path]
"""Bytes by name, or the files that hold them."""


class Lost(OSError):  # noqa: N818
    """Another process has gone, or does not answer."""


class Shelf:
    """Offers named bytes to other processes, at one address of this machine."""

    def __init__(self, address: str, timeout: float) -> None:
        """Listen at a free port of `address`."""
        self._offers: dict[Key, Callable[[], Parts]] = {}
        self._changed, self._timeout = Condition(), timeout
        self._served: dict[Key, int] = {}
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), family=family)
        host, port = self._socket.getsockname()[:2]
        self.place: str = f"{host}:{port}"
        """The address and the port."""
        Thread(target=self._listen, name="camshaft-shelf", daemon=True).start()

    def offer(self, key: Key, make: Callable[[], Parts]) -> None:
        """Give what `make` makes to whoever asks for it, and no older offer of this kind."""
        with self._changed:
            self.withdraw(key[0])
            self._offers[key] = make
            self._changed.notify_all()

    def withdraw(self, kind: str) -> None:
        """Free the memory of offers that nobody needs."""
        with self._changed:
            for old in [old for old in self._offers if old[0] == kind]:
                del self._offers[old]

    def await_served(self, key: Key, count: int, most: float) -> None:
        """Wait until so many processes have got an offer, at most so many seconds."""
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
        # Whatever fails here, the other one sees the connection close.
        with connection, suppress(OSError, ValueError, LookupError):
            connection.settimeout(self._timeout)
            kind, which, names = json.loads(_received_header(connection))
            connection.settimeout(None)
            key: Key = (str(kind), which)
            with self._changed:
                limit = None if kind == "end" else self._timeout
                if not self._changed.wait_for(lambda: key in self._offers, limit):
                    return
                make = self._offers[key]
            parts = make()
            _send(connection, {name: parts[name] for name in (parts if names is None else names)})
            with self._changed:
                self._served[key] = self._served.get(key, 0) + 1
                self._changed.notify_all()


def received_from(
    place: str, key: Key, timeout: float | None, names: Collection[str] | None = None
) -> dict[str, bytearray]:
    """What a process offers at this place, or what it offers by these names.

    Raises:
        Lost: It has gone, does not offer this, or the bytes are not what it sent.
    """
    found = dict[str, bytearray]()
    for name, piece in _pieces_from(place, key, timeout, names):
        found.setdefault(name, bytearray()).extend(piece)
    return found


def received_into(
    folder: Path, place: str, key: Key, timeout: float, names: Collection[str]
) -> None:
    """Write files that a process offers to new files in a folder, and wait for the disk.

    Raises:
        Lost: It has gone, does not offer this, or the bytes are not what it sent.
        OSError: The disk is full.
    """
    last, file = None, None
    with ExitStack() as stack, closing(_pieces_from(place, key, timeout, names)) as pieces:
        for name, piece in pieces:
            if name not in names:
                raise Lost(f"{place} gives another file than was asked for: {name!r}")
            if file is None or name != last:
                stack.close()
                file = stack.enter_context(created(folder / name))
                stack.callback(synchronise, folder / name)
                stack.callback(file.flush)
                last = name
            file.write(piece)


def _pieces_from(
    place: str, key: Key, timeout: float | None, names: Collection[str] | None = None
) -> Generator[tuple[str, memoryview], None, None]:
    """The bytes that a process offers, piece by piece; at least one piece of each name."""
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=timeout) as connection:
            for option, value in ALIVE:  # a machine that is switched off closes no connection
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            asked = json.dumps([*key, None if names is None else sorted(names)])
            _send_header(connection, asked.encode())
            for name, size in json.loads(_received_header(connection)):
                crc, left, buffer = 0, size, memoryview(bytearray(min(size, BLOCK)))
                yield str(name), buffer[:0]
                while left:
                    count = connection.recv_into(buffer[:left])
                    if not count:
                        raise ConnectionError("the connection was closed")
                    crc, left = zlib.crc32(buffer[:count], crc), left - count
                    yield str(name), buffer[:count]
                if int.from_bytes(_received(connection, 4), "little") != crc:
                    raise ValueError("the bytes do not have their checksum")
    except (OSError, ValueError) as error:
        raise Lost(f"{place} did not give its {key[0]}: {error}") from error


def _send(connection: socket.socket, parts: Parts) -> None:
    with ExitStack() as stack:
        files = dict[str, IO[bytes]]()
        for name, part in parts.items():
            if isinstance(part, Path):
                files[name] = stack.enter_context(regular(part))
            else:
                files[name] = BytesIO(part)
        header = [[name, file.seek(0, SEEK_END)] for name, file in files.items()]
        _send_header(connection, json.dumps(header).encode())
        for file in files.values():
            crc, _ = 0, file.seek(0)
            while piece := file.read(BLOCK):
                connection.sendall(piece)
                crc = zlib.crc32(piece, crc)
            connection.sendall(crc.to_bytes(4, "little"))


def _send_header(connection: socket.socket, content: bytes) -> None:
    connection.sendall(len(content).to_bytes(8, "little") + content)


def _received_header(connection: socket.socket) -> bytes:
    size = int.from_bytes(_received(connection, 8), "little")
    if size > LONGEST:
        raise ValueError(f"a header of {size} bytes")
    return _received(connection, size)


def _received(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        piece = connection.recv(min(BLOCK, size - len(content)))
        if not piece:
            raise ConnectionError("the connection was closed")
        content += piece
    return content


def own_address(towards: str, port: int) -> str:
    """The address of this machine from which it reaches another one."""
    family, *_, where = socket.getaddrinfo(towards, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
        probe.connect(where)
        return str(probe.getsockname()[0])
