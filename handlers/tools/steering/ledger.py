"""The files by which a run is steered: what is asked for, and the ledger of what was.

Each is replaced as a whole, so that no kill leaves a half.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...files import (
    LARGEST_TEXT,
    appearing,
    created,
    make_directory_inside,
    put_in_place,
    regular,
    text_of,
    tree_of,
)

FOLDER, LEDGER = "steering", "ledger.jsonl"
Row = dict[str, Any]
"""What was asked for: the name of the request, who asked and when, the new values by name, and the
iteration after which they count; with `refused` also why they do not."""


def ledger_of(directory: Path) -> Path:
    """Where the ledger of a run is."""
    return directory / FOLDER / LEDGER


def read_ledger(directory: Path) -> list[Row]:
    """The rows of a run's ledger; none if there is no ledger.

    Raises:
        ValueError: A line of it is no row.
    """
    path, rows = ledger_of(directory), list[Row]()
    with suppress(FileNotFoundError), regular(path) as file:
        for number, line in enumerate(file.read(LARGEST_TEXT).splitlines(), 1):
            rows.append(_checked(line, f"line {number} of {path}", request=str, iteration=int))
    return rows


def write_ledger(directory: Path, rows: Iterable[Row]) -> None:
    """Write the ledger, a row in a line; when this returns, it is on the disk."""
    make_directory_inside(directory, FOLDER)
    text = "".join(f"{text_of(row)}\n" for row in rows)
    put_in_place(ledger_of(directory), text.encode())


def ask(directory: Path, values: Mapping[str, float | None], at: str | None) -> str:
    """Ask for values after an iteration, by default the one at hand; the name of the request."""
    request = f"asked-{time.time_ns():020}-{os.urandom(4).hex()}"
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    text = text_of({"by": by, "time": round(time.time(), 3), "set": dict(values), "at": at or ""})
    path = directory / FOLDER / f"{request}.json"
    with appearing(path) as draft, created(draft) as file:
        file.write(text.encode())
        draft.chmod(0o644)
    return request


def asked(directory: Path) -> list[Path]:
    """The requests that no run has taken up, the oldest first."""
    return sorted((directory / FOLDER).glob("asked-*.json"))


def read_request(path: Path, now: int) -> Row:
    """The row of a request that is taken up in iteration `now`.

    Raises:
        PermissionError: Somebody else than this user, or root, may have written it.
        ValueError: It is no request.
    """
    with regular(path) as file:
        status = os.fstat(file.fileno())
        own = os.geteuid() if hasattr(os, "geteuid") else status.st_uid
        if status.st_uid not in (0, own) or status.st_mode & 0o022:
            raise PermissionError(
                f"{path} is not followed: it has to belong to user {own}, who runs this, and only "
                f"that user may write to it; it belongs to user {status.st_uid}, with mode "
                f"{status.st_mode & 0o777:o}"
            )
        row = _checked(file.read(LARGEST_TEXT), f"{path}", at=str)
    at = row.pop("at")
    iteration = now + int(at) if at[:1] == "+" else int(at or now)
    return {"request": path.stem, **row, "iteration": iteration}


def _checked(text: bytes, place: str, **more: type) -> Row:
    try:
        row = tree_of(text)
    except ValueError as error:
        raise ValueError(f"{place} {error}") from None
    kinds = {"by": str, "time": float, "set": dict, **more}
    if not isinstance(row, dict) or any(type(row.get(n)) is not kind for n, kind in kinds.items()):
        raise ValueError(f"{place} is not what camshaft set writes: it needs {', '.join(kinds)}")
    return row
