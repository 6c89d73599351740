"""A real file system that fails on order: it tears, lies, forgets, or is killed at an operation."""

from collections.abc import Callable
from contextlib import contextmanager
from itertools import count
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

NOTHING: Callable[[str, str], None] = lambda operation, path: None  # noqa: E731


class Faulty(LocalFileSystem):
    protocol = "faulty"
    cachable = False
    before: ClassVar[Callable[[str, str], None]] = NOTHING
    """Called with each operation and its path; what it raises is the fault."""
    tear: ClassVar[Callable[[str, bytes], bytes]] = lambda path, content: content
    """What is really written, in the place of what was to be written."""
    listing: ClassVar[dict | None] = None
    """What a listing gives, in the place of what there is."""

    def find(self, path, **options):
        type(self).before("find", path)
        return super().find(path, **options) if self.listing is None else self.listing

    def ls(self, path, *args, **options):
        type(self).before("list", path)
        return super().ls(path, *args, **options)

    def info(self, path, **options):
        if isinstance(path, str):  # otherwise it is a part of a listing
            type(self).before("info", path)
        return super().info(path, **options)

    def cat_file(self, path, **options):
        type(self).before("read", path)
        return super().cat_file(path, **options)

    def get_file(self, path, to, **options):
        type(self).before("get", path)
        super().get_file(path, to, **options)
        type(self).before("got", to)

    def pipe_file(self, path, value, **options):
        type(self).before("write", path)
        super().pipe_file(path, type(self).tear(path, value), **options)
        type(self).before("written", path)

    def mv(self, path, to, **options):
        type(self).before("move", path)
        super().mv(path, to, **options)
        type(self).before("moved", path)

    def rm_file(self, path):
        type(self).before("remove", path)
        super().rm_file(path)
        type(self).before("removed", path)

    def _open(self, path, mode="rb", **options):
        if mode == "rb":
            return super()._open(path, mode, **options)
        return Written(super()._open(path, mode), path)


class Written:
    """A file of the store; a kill may come at each piece."""

    def __init__(self, file, path):
        self._file, self._path = file, path

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def write(self, piece):
        Faulty.before("write", self._path)
        torn = Faulty.tear(self._path, piece)
        self._file.write(torn[: len(torn) // 2])
        self._file.flush()
        Faulty.before("half", self._path)
        self._file.write(torn[len(torn) // 2 :])


fsspec.register_implementation("faulty", Faulty, clobber=True)


class Killed(BaseException):
    """The end of a process, wherever it is."""


@contextmanager
def fault(before):
    """Call a function before each operation."""
    Faulty.before = before
    try:
        yield
    finally:
        Faulty.before = NOTHING


def killed(act, before):
    """Act until a function that is called before each operation ends the process."""
    with fault(before), pytest.raises(Killed):
        act()


def kills(act, least=5):
    """Act again and again, killed at a later operation each time, until it acts to its end."""
    for number in count():

        def before(operation, path, left=iter(range(number))):
            if next(left, None) is None:
                raise Killed

        try:
            with fault(before):
                act()
        except Killed:
            yield
        else:
            assert number > least
            return
