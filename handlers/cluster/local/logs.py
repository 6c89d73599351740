"""The logs of hosts that share no directory: rank 0 writes them, and the next host has copies.

A file `START` names the run and the start that logs are of. When the run is started again, perhaps
with rank 0 on another host, rank 0 gets each log from where it was written last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from shutil import copyfile
from typing import IO, NamedTuple

from ....engine import ranks
from ...checkpoint.directory import LOGS, is_log, logs_in
from ...files import (
    appearing,
    created,
    make_directory_inside,
    opened,
    put_in_place,
    regular,
    remove_path,
    synchronise,
)
from .hosts import Hosts, receive_bytes, receive_text, send_bytes, send_text

COPIES = ".logs-of-rank-0"
"""The folder of the copies, in the directory of the next host."""
START = "START"
"""The file that says which start of which run wrote the logs beside it."""
TAIL = 64
"""How many bytes before a place are compared, to tell a log from another one."""
TAG = 0x10C5
"""The tag of the messages that bring logs to rank 0."""


class FoundLog(NamedTuple):
    """A log in some place."""

    start: int
    """The number of the start that wrote it; 0 if that is unknown."""
    size: int
    rank: int
    """The first rank of the host that has it; -1 if it is in the object store."""
    is_copy: bool = False

    @property
    def order(self) -> tuple[int, int, bool]:
        """Of logs of one name, the greatest is taken: the latest, if possible where it is."""
        return self.start, self.size, self.rank == 0 and not self.is_copy


class SentLogs:
    """What the next host has of the logs of this start."""

    def __init__(self, directory: Path, run: str, start: int) -> None:
        self.directory = directory
        self._mark = f"{run} {start}"
        self._sent: dict[str, tuple[tuple[int, int], int, bytes]] = {}
        """By name: which file it was, how much of it was sent, and the last bytes of that."""

    def mark(self) -> None:
        """Note that the logs of this directory are of this start."""
        put_in_place(self.directory / START, self._mark.encode())

    def forget(self) -> None:
        """Send all logs whole at the next time: the other host may lack a part."""
        self._sent = {}

    def send(self, to: int, tag: int) -> None:
        """Send what is new in each log since the last time; all of it, if the file is another."""
        sent, self._sent = self._sent, {}
        with ExitStack() as stack:
            parts = list[LogPart]()
            for name in sorted(logs_in(self.directory, LOGS)):
                with suppress(OSError):  # it is moved aside, or is no file
                    file = stack.enter_context(regular(self.directory / name))
                    status = os.fstat(file.fileno())
                    known, begin, last = sent.get(name, ((-1, -1), 0, b""))
                    which, size = (status.st_dev, status.st_ino), status.st_size
                    is_same = which == known and begin <= size and _before(file, begin) == last
                    if not is_same or begin < size:
                        parts.append(LogPart(name, begin if is_same else 0, size, file))
                    self._sent[name] = which, size, _before(file, size)
            _send(self._mark, parts, to, tag)

    def receive(self, source: int, tag: int) -> None:
        """Bring the copies on this host up to date.

        Raises:
            OSError: The other host is gone, or the disk is full.
            ValueError: The other host sends no logs.
        """
        mark, names = _receive(self.directory, COPIES, source, tag)
        place = make_directory_inside(self.directory, COPIES)
        if _noted(place / START) != mark:  # at first, a start sends all of its logs
            for name in set(logs_in(place, LOGS)).difference(names):
                remove_path(place / name)
            put_in_place(place / START, mark.encode())


def _before(file: BufferedReader, place: int) -> bytes:
    """The last bytes before a place, by which another file of the same number is noticed."""
    begin = max(place - TAIL, 0)
    return os.pread(file.fileno(), place - begin, begin)


class LogPart(NamedTuple):
    """The bytes of a log from one place to another."""

    name: str
    begin: int
    end: int
    file: BufferedReader


def bring_logs(
    directory: Path, hosts: Hosts, run: str, stored: Mapping[str, FoundLog]
) -> tuple[int, list[str]]:
    """Give rank 0's host the latest of each log; all ranks call this.

    Args:
        directory: The directory of this host.
        hosts: The hosts.
        run: The name of the run.
        stored: On rank 0: the logs in the object store.

    Returns:
        The number of the start that wrote the latest one; 0 if that is unknown. And on rank 0: the
        names of the logs that are to be downloaded from the store.
    """
    with ranks.on_all_ranks(f"read the logs in {directory}"):
        own = _found(directory, run, [*LOGS, *stored]) if hosts.is_first_here else []
    latest = dict[str, FoundLog]()
    found = [each for some in ranks.gathered(own) for each in some]
    for name, each in [*found, *stored.items()]:
        latest[name] = max(latest.get(name, each), each, key=lambda log: log.order)
    latest = ranks.from_first(latest)
    with ranks.on_all_ranks("bring the logs to the host of rank 0"):
        for source in hosts.firsts:
            wanted = {n: each for n, each in latest.items() if each.rank == source}
            if source == 0 == ranks.rank():
                _take_copies(directory, [n for n, each in wanted.items() if each.is_copy])
            elif wanted and ranks.rank() == source:
                _send_whole(directory, wanted)
            elif wanted and ranks.rank() == 0:
                _receive(directory, "", source, TAG)
    start = max((each.start for each in latest.values()), default=0)
    return start, [name for name, each in latest.items() if each == stored.get(name)]


def _take_copies(directory: Path, names: list[str]) -> None:
    """Rank 0 runs on the host that has had the copies."""
    for name in names:
        make_directory_inside(directory, *name.split("/")[:-1])
        with appearing(directory / name) as draft:
            copyfile(directory / COPIES / name, draft, follow_symlinks=False)
            synchronise(draft)


def _found(directory: Path, run: str, patterns: list[str]) -> list[tuple[str, FoundLog]]:
    """The logs and the copies on this host, of this run."""
    found = []
    for is_copy in (False, True):
        place = directory / COPIES if is_copy else directory
        own, _, start = _noted(place / START).rpartition(" ")
        if own != run and (is_copy or ranks.rank() > 0):
            continue
        number = int(start) if own == run and start.isdigit() else 0
        for name in logs_in(place, patterns):
            with suppress(FileNotFoundError):
                size = (place / name).lstat().st_size
                found.append((name, FoundLog(number, size, ranks.rank(), is_copy)))
    return found


def _send_whole(directory: Path, logs: Mapping[str, FoundLog]) -> None:
    with ExitStack() as stack:
        parts = list[LogPart]()
        for name, each in logs.items():
            place = directory / COPIES if each.is_copy else directory
            parts.append(LogPart(name, 0, each.size, stack.enter_context(regular(place / name))))
        _send("", parts, 0, TAG)


def _send(mark: str, parts: list[LogPart], to: int, tag: int) -> None:
    send_text(json.dumps([mark, [each[:3] for each in parts]]), to, tag)
    for _, begin, end, file in parts:
        send_bytes(file, begin, end, to, tag)


def _receive(directory: Path, folder: str, source: int, tag: int) -> tuple[str, list[str]]:
    """Receive parts of logs: whose they are, and their names."""
    mark, parts = json.loads(receive_text(source, tag))
    failure: Exception | None = None
    for name, begin, end in parts:
        opening = _opened(directory, folder, name, begin, end)
        failure = receive_bytes(opening, end - begin, source, tag) or failure
    if failure is not None:
        raise failure
    return str(mark), [name for name, *_ in parts]


@contextmanager
def _opened(
    directory: Path, folder: str, name: str, begin: int, end: int
) -> Generator[IO[bytes], None, None]:
    """A log to write from a place on; a whole one replaces another at once."""
    if not is_log(name, LOGS):
        raise ValueError(f"another rank sends {name!r}, which is no log")
    *folders, last = [*folder.split("/"), *name.split("/")]
    path = make_directory_inside(directory, *filter(None, folders)) / last
    if begin == 0:
        with appearing(path) as draft, created(draft) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        return
    with open(opened(path, os.O_RDWR), "r+b") as file:
        if os.fstat(file.fileno()).st_size < begin:
            raise OSError(f"{path} has fewer bytes than were written to it")
        file.seek(begin)
        yield file
        file.truncate(end)
    synchronise(path)


def _noted(path: Path) -> str:
    with suppress(OSError, ValueError), regular(path) as file:
        return file.read(1000).decode("ascii")
    return ""
