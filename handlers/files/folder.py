"""Folders below the directory that a user names: whole files are put into them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote
from uuid import uuid4

from .durable import LEFTOVER
from .opening import refuse_odd_directory

HOLD = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
CAN_HOLD = {os.open, os.mkdir, os.unlink, os.rename} <= os.supports_dir_fd


class Folder:
    """A folder that is made if need be, and held open: no link that takes its place is followed.

    A system that cannot hold folders, such as Windows, goes by their paths.
    """

    def __init__(self, directory: Path, *names: str) -> None:
        """Open `directory`, which may be a link of the user's own, and the folders inside it.

        Raises:
            NotADirectoryError: One of the folders is a link or a file.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory
        self._held = os.open(directory, os.O_RDONLY) if CAN_HOLD else None
        try:
            for name in names:
                self._enter(name)
        except BaseException:
            self.close()
            raise

    def put(self, name: str, content: bytes) -> None:
        """Write a file, which is there as a whole or not at all; what had its name is gone."""
        draft = self._at(f".tmp-{name}-{uuid4().hex}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        descriptor = os.open(draft, flags, 0o666, dir_fd=self._held)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
            os.replace(draft, self._at(name), src_dir_fd=self._held, dst_dir_fd=self._held)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=self._held)
            raise

    def sweep(self) -> None:
        """Remove the halves of files that killed processes left."""
        for name in os.listdir(self._path if self._held is None else self._held):
            if LEFTOVER.fullmatch(name):
                with suppress(OSError):
                    os.unlink(self._at(name), dir_fd=self._held)

    def close(self) -> None:
        """Hold the folder no longer."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _enter(self, name: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(self._at(name), dir_fd=self._held)
        self._path /= name
        refuse_odd_directory(self._path)
        if self._held is not None:
            outer, self._held = self._held, os.open(name, HOLD, dir_fd=self._held)
            os.close(outer)

    def _at(self, name: str) -> str:
        """What the system calls a name inside: on its own, if the folder is held."""
        return name if self._held is not None else str(self._path / name)


def safe_name(text: str) -> str:
    """A text as the name of one file: with no separator in it, and neither `.` nor `..`.

    >>> safe_name("../loss %"), safe_name("."), safe_name("val loss")
    ('%2E%2E%2Floss %25', '%2E', 'val loss')
    """
    return "%2E" if text == "." else quote(text, safe=" ").replace("..", "%2E%2E")
