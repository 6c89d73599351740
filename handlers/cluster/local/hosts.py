"""The hosts of a run: which ranks share a disk, and the copies that they send to one another."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from io import BufferedReader
from pathlib import Path
from typing import IO, Any
from zlib import crc32

from ....engine import ranks
from ...checkpoint.directory import checksums_of
from ...checkpoint.format import PLAIN_NAME, Checksums, Manifest
from ...checkpoint.save import Files, Team
from ...files import beside, created, make_directory, regular, remove_path, synchronise, tree_of

logger: logging.Logger = logging.getLogger("camshaft")

PIECE = 4 * 2**20
"""The bytes that are sent at once."""
LARGEST = 2**26
"""The most bytes that tell which files follow."""
FAILED = -1
"""The size that a rank sends if it could not write its files."""


class Hosts(Team):
    """The ranks of all hosts, each of which has a directory of its own."""

    def __init__(self, directory: Path, *, copies: int) -> None:
        """Know no host yet."""
        super().__init__(directory, is_alone=False)
        self._copies = copies
        self.firsts: list[int] = [0]
        """The first rank of each host."""
        self.members: list[int] = [0]
        """The ranks of this host."""
        self._first_here = 0
        self._to: int | None = None
        self._from: list[int] = []

    @property
    def is_first_here(self) -> bool:
        """True for the first rank of a host."""
        return self.rank == self._first_here

    @property
    def number(self) -> int:
        """The number of this host."""
        return self.firsts.index(self._first_here)

    def meet(self) -> None:
        """Find out which ranks see the same directory: these are a host.

        Raises:
            OSError: A rank cannot write to its directory.
        """
        probe = beside(self._directory / "iteration-0", "tmp")
        self._session = str(ranks.from_first(probe.name)).rpartition("-")[2]
        if self.size == 1:
            return
        with self.all(f"write to {self._directory}"):
            make_directory(self._directory)
            with created(probe):
                pass
        try:
            probes = ranks.gathered(probe.name)
            seen = set(os.listdir(self._directory))
            own = next(rank for rank, name in enumerate(probes) if name in seen)
            first_of = ranks.gathered(own)
        finally:
            with suppress(OSError):
                probe.unlink()
        self._first_here = own
        self.firsts = sorted({*first_of})
        self.members = [rank for rank, first in enumerate(first_of) if first == own]
        if self._copies and len(self.firsts) > 1:
            ranks.side_group()
            self._pair(first_of)

    def _pair(self, first_of: list[int]) -> None:
        """Each rank sends to one of the next host."""
        members = {first: [n for n, f in enumerate(first_of) if f == first] for first in first_of}
        to = dict[int, int]()
        for at, first in enumerate(self.firsts):
            others = members[self.firsts[(at + 1) % len(self.firsts)]]
            to |= {rank: others[n % len(others)] for n, rank in enumerate(members[first])}
        self._to = to[self.rank]
        self._from = [rank for rank in to if to[rank] == self.rank]

    def report(
        self, temporary: Path, written: Files | None, failure: BaseException | None
    ) -> Files | None:
        """Send a copy to the next host before it counts; then tell rank 0.

        Returns:
            The files of all ranks on rank 0; none on the first rank of other hosts, which have to
            `hear` of them; None on other ranks.
        """
        if self._to is not None:
            try:
                self._exchange(temporary, written, self._to)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            written = None
        try:
            found = super().report(temporary, written, failure)
        except BaseException:
            if self.rank == 0:
                self.tell(temporary, None, is_copied=False)
            raise
        return {} if found is None and self.is_first_here else found

    def all_say(self, temporary: Path, is_so: bool) -> bool:
        """On rank 0: True if the first ranks of all hosts say so; the others call this, too."""
        box = f"{temporary.name}/said"
        if self.rank > 0:
            ranks.leave(box, str(int(is_so)))
            return False
        others = len(self.firsts) - 1
        said = ranks.collected(box, others, self._is_over) if others else []
        return is_so and said == ["1"] * others

    def tell(self, temporary: Path, manifest: Manifest | None, *, is_copied: bool) -> None:
        """On rank 0: give the manifest to the first rank of each other host; None if it failed."""
        text = json.dumps([manifest and manifest.to_json(), is_copied])
        with suppress(OSError) if manifest is None else nullcontext():  # the error is raised anyway
            for first in self.firsts[1:]:
                ranks.leave(f"{temporary.name}-{first}", text)

    def hear(self, temporary: Path) -> tuple[Manifest, bool]:
        """The manifest that rank 0 has written, and whether all copy the checkpoint to a store.

        Raises:
            OSError: Rank 0 has written none.
        """
        letters = ranks.collected(f"{temporary.name}-{self.rank}", 1, self._is_over)
        if not letters:
            raise OSError(f"rank 0 has not told that all ranks have written {temporary}")
        text, is_copied = json.loads(letters[0])
        if text is None:
            raise OSError(f"rank 0 has not saved {temporary}; its own error says why")
        return Manifest.of_json(text), is_copied

    def remove(self, temporary: Path, condemned: Collection[Path]) -> None:
        """Remove directories of this host."""
        for each in condemned:
            remove_path(each)

    def _exchange(self, temporary: Path, written: Files | None, to: int) -> None:
        """Send this rank's files while others' are received."""
        tag = crc32(temporary.name.encode()) >> 1  # what a failed save left behind is never read
        with ThreadPoolExecutor(1, "camshaft-copies") as pool:
            sent = pool.submit(send_files, temporary, written, to, tag)
            failures = []
            for source in self._from:
                try:
                    receive_files(temporary, source, tag)
                except (OSError, ValueError) as error:
                    failures.append(error)
            sent.result()
        if failures:
            raise OSError(f"rank {self.rank} has no copy: {failures[0]}")
        synchronise(temporary)


def send_text(text: str, to: int, tag: int) -> None:
    """Send a text, and before it its size."""
    content = bytearray(text.encode())
    ranks.send_beside(bytearray(len(content).to_bytes(8, "big", signed=True)), to, tag)
    ranks.send_beside(content, to, tag)


def receive_text(source: int, tag: int) -> bytes:
    """Receive a text.

    Raises:
        OSError: The other rank could not write what it was to tell of.
    """
    announced = bytearray(8)
    ranks.receive_beside(announced, source, tag)
    size = int.from_bytes(announced, "big", signed=True)
    if not 0 < size <= LARGEST:
        raise OSError(f"rank {source} could not write its files")
    text = bytearray(size)
    ranks.receive_beside(text, source, tag)
    return bytes(text)


def send_bytes(file: BufferedReader, begin: int, end: int, to: int, tag: int) -> None:
    """Send the bytes of a file from one place to another; zeros if it ends before."""
    file.seek(begin)
    for place in range(begin, end, PIECE):
        piece = bytearray(min(PIECE, end - place))
        file.readinto(piece)
        ranks.send_beside(piece, to, tag)


def receive_bytes(
    opening: AbstractContextManager[IO[bytes]], size: int, source: int, tag: int
) -> Exception | None:
    """Write bytes that arrive to a file; return an error of the disk.

    After such an error the rest is received and dropped: the sender must not wait.

    Raises:
        ConnectionError: The other rank is gone, or does not send in time.
    """
    pieces = _pieces(size, source, tag)
    failure: Exception | None = None
    try:
        with opening as file:
            file.writelines(pieces)
    except ConnectionError:
        raise
    except (OSError, ValueError) as error:
        failure = error
    for _ in pieces:
        pass
    return failure


def _pieces(size: int, source: int, tag: int) -> Generator[bytearray, None, None]:
    for place in range(0, size, PIECE):
        piece = bytearray(min(PIECE, size - place))
        ranks.receive_beside(piece, source, tag)
        yield piece


def send_files(folder: Path, files: Files | None, to: int, tag: int) -> None:
    """Send files to a rank of another host; None if there are none because of a failure."""
    if files is None:
        ranks.send_beside(bytearray(FAILED.to_bytes(8, "big", signed=True)), to, tag)
        return
    send_text(json.dumps({name: asdict(each) for name, each in files.items()}), to, tag)
    for name, sums in files.items():
        with regular(folder / name) as file:
            send_bytes(file, 0, sums.size, to, tag)  # fewer bytes do not have the checksum


def receive_files(folder: Path, source: int, tag: int) -> None:
    """Receive a rank's files, and compare their checksums on the disk.

    Raises:
        OSError: The files were not sent, or cannot be written.
        ValueError: The files are damaged.
    """
    text = receive_text(source, tag)
    files = {str(name): Checksums(**each) for name, each in tree_of(text).items()}
    failure: Exception | None = None
    for name, sums in files.items():
        opening = _created(folder, name)
        failure = receive_bytes(opening, sums.size, source, tag) or failure
    if failure is not None:
        raise failure
    _compare(folder, files, source)


@contextmanager
def _created(folder: Path, name: str) -> Generator[IO[bytes], None, None]:
    """A new file in a folder, which is on the disk afterwards."""
    if not PLAIN_NAME.fullmatch(name):
        raise ValueError(f"another rank sends a file {name!r}")
    folder.mkdir(exist_ok=True)
    with created(folder / name) as file:
        yield file
    synchronise(folder / name)


def _compare(folder: Path, files: Mapping[str, Any], source: int) -> None:
    for name, sums in files.items():
        if checksums_of(folder / name) != sums:
            raise ValueError(f"{name} of rank {source} was damaged on its way to {folder}")
