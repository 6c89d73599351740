"""Opening the files of a run directory: regular files only, and never through a link.

The directory that the user names may be reached through links of the user's own. Below it, and for
the last name of a file that is written, a link is refused: it may lead to any file of the user.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path

try:
    import fcntl
except ImportError:  # there is no fcntl on Windows
    fcntl = None  # type: ignore[assignment]

REGULAR_ONLY = (
    getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)
REFUSED = (errno.EINVAL, errno.EFAULT, errno.EOPNOTSUPP)
"""What file systems say that cannot write past the cache, or not there, or not from that memory."""
KINDS = {
    stat.S_IFLNK: "link",
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class NotRegularError(OSError):
    """A link, a directory, a pipe or a device lies where a run has a file."""

    def __init__(self, path: Path, status: os.stat_result) -> None:
        kind = kind_of(status.st_mode)
        remedy = "remove it, or choose another name"
        if kind == "directory":
            remedy = "name a file, or move the directory away"
        if kind == "link":
            remedy = "files of a run are not opened through links, so put the file itself there"
        super().__init__(f"{path} is not a regular file but a {kind}; {remedy}")


class RemovedError(FileNotFoundError):
    """A file was removed while it was open."""


def kind_of(mode: int) -> str:
    """What is at a path, in a word."""
    return KINDS.get(stat.S_IFMT(mode), "file")


def regular(path: Path) -> BufferedReader:
    """Open a regular file to read it.

    Raises:
        NotRegularError: It is a link, a directory, a pipe or a device.
    """
    return open(opened(path, os.O_RDONLY), "rb")


def created(path: Path) -> BufferedWriter:
    """Make a file that is not there, and open it to write.

    Raises:
        FileExistsError: Something is there, be it a link that leads nowhere.
    """
    return open(path, "xb")


def written_past_cache(file: BufferedWriter, chunk: memoryview) -> int:
    """Write whole blocks to the end of a file, from memory straight to the disk.

    The system's cache would copy them, which takes more of a processor than checksums do, and would
    give up what training reads. Nobody may change the memory meanwhile, and `os.fsync` is needed as
    after any other write.

    Returns:
        How many bytes were written; 0 if the system, the file system, the position in the file or
        the place in memory does not allow for that.

    Raises:
        OSError: The disk is full, or fails.
    """
    if fcntl is None or not hasattr(os, "O_DIRECT"):
        return 0
    file.flush()
    descriptor = file.fileno()
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        try:
            return os.write(descriptor, chunk)
        finally:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        return 0


def appending(path: Path) -> int:
    """Open a file to add to its end, or make it: a descriptor, which can also be read.

    Raises:
        NotRegularError: It is a link, a directory, a pipe or a device.
        OSError: The file has a second name, under which it would change too.
    """
    descriptor = opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise OSError(
            f"{path} is one file with another name (a hard link), which would change too; put a "
            "copy in its place"
        )
    return descriptor


def size_of(path: Path) -> int:
    """The size of a regular file, without opening it.

    Raises:
        NotRegularError: It is a link, a directory, a pipe or a device.
    """
    return _regular_status(path, path.lstat()).st_size


def refuse_odd(path: Path) -> None:
    """Check that a path is free, or is a regular file.

    Raises:
        NotRegularError: A link, a directory, a pipe or a device is there.
    """
    with suppress(FileNotFoundError):
        size_of(path)


def refuse_odd_directory(path: Path) -> None:
    """Check that a path is free, or is a directory, not a link: for paths that no user has named.

    Raises:
        NotADirectoryError: A link or a file is there.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(mode := path.lstat().st_mode):
            raise NotADirectoryError(
                f"{path} is not a directory but a {kind_of(mode)}; nothing is written through it, "
                "so put a directory in its place, or remove it"
            )


def refuse_removed(descriptor: int, path: Path) -> None:
    """Check that an open file still has a name; a file that was moved has one.

    Raises:
        RemovedError: Somebody has removed it, or put another file in its place.
    """
    if os.fstat(descriptor).st_nlink == 0:
        raise RemovedError(
            f"{path} was removed while the run wrote to it: what it held is lost, and what "
            "follows goes to a new file"
        )


def is_still(path: Path, status: os.stat_result) -> bool:
    """True if this file or directory is at the path, or if that cannot be found out now."""
    try:
        return os.path.samestat(path.stat(), status)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # the next write raises the error
        return True


def opened(path: Path, flags: int) -> int:
    """Open a regular file by these flags.

    Raises:
        NotRegularError: It is a link, a directory, a pipe or a device.
    """
    refuse_odd(path)  # to open a pipe waits, to open a device may do anything
    descriptor = os.open(path, flags | REGULAR_ONLY, 0o666)
    try:
        _regular_status(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _regular_status(path: Path, status: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(path, status)
    return status
