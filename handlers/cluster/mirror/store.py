"""One prefix of an object store, or of another file system that fsspec knows."""

from __future__ import annotations

import posixpath
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import SystemRandom
from typing import Any, BinaryIO

from ...checkpoint import Checksums, Manifest
from ...files import printable, refuse_odd

CHUNK = Checksums(0, []).chunk
"""The bytes of a file that have one checksum."""
MOST_PARTS = 9000
"""Parts of one upload; S3 takes 10,000."""
DRAFT = ".tmp-"
"""Begins the name of a file that is being written."""
ODD = -1
"""The size given for a link, a pipe or a device."""
SMALL = 1000
"""The most bytes of a note."""
LOCAL = ("file", "local")
PLACES = ("file:", "local:")
HARMLESS = ("endpoint_url", "region_name", "profile", "protocol")
"""Options whose values may be shown."""


class DamagedError(Exception):
    """A file on the disk is not what its manifest says."""


class Store:
    """The objects below one address, by their names relative to it.

    Errors are those of fsspec and its libraries, of any kind; `said` is what may be shown of one.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        check_address(url)
        self.url: str = shown(url)
        self._secrets = sorted(_secrets(options), key=len, reverse=True)
        self._is_local = protocol_of(url) in LOCAL
        self._given = (url, options)
        self.connect()
        self._has_folders = not isinstance(
            self._files, import_module("fsspec.asyn").AsyncFileSystem
        )

    def connect(self) -> None:
        """Open the file system anew, with the credentials that the library finds now."""
        url, options = self._given
        core = import_module("fsspec.core")
        self._files, self._root = core.url_to_fs(url, **options, skip_instance_cache=True)

    def sizes(self, folder: str = "") -> dict[str, int]:
        """All names, or those in a folder, with their sizes in bytes, or ODD.

        A store's listing may be out of date.
        """
        self._files.invalidate_cache()
        place = self._path(folder) if folder else self._root
        if self._has_folders:  # `find` would report an unreadable folder as empty
            found = dict(self._walk(place))
        else:
            found = self._files.find(place, detail=True)
        return {path[len(self._root) :].lstrip("/"): _size(found[path]) for path in found}

    def _walk(self, path: str) -> Iterator[tuple[str, Any]]:
        try:
            listed = self._files.ls(path, detail=True)
        except FileNotFoundError:  # not there yet, or not any more
            return
        for each in listed:
            if each["name"] == self._root:
                raise NotADirectoryError(f"{self.url} is a file")
            if each["type"] == "directory":
                yield from self._walk(each["name"])
            else:
                yield each["name"], each

    def read(self, name: str, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, or fewer if the object ends before."""
        content: bytes = self._files.cat_file(self._file(name), start=start, end=end)
        return content

    def read_small(self, name: str, most: int) -> bytes | None:
        """An object of at most so many bytes; None if there is none.

        Raises:
            ValueError: The object is larger.
        """
        try:
            content = self.read(name, 0, most + 1)
        except FileNotFoundError:
            return None
        if len(content) > most:
            raise ValueError(f"{name} has more than {most:,} bytes")
        return content

    def has(self, name: str) -> bool:
        """True if there is such an object."""
        self._files.invalidate_cache()
        return bool(self._files.isfile(self._path(name)))

    def get(self, name: str, path: Path) -> None:
        """Download an object to a file here; the library requests several parts at a time."""
        self._files.get_file(self._file(name), str(path))

    def put(self, name: str, file: BinaryIO, size: int, crc32: list[int] | None = None) -> None:
        """Write the first bytes of a file; compare the size and one chunk with the store's object.

        After an error, a part of the object may be there.

        Args:
            name: The object.
            file: Where to read; it may grow meanwhile.
            size: How many bytes.
            crc32: The checksums that the chunks of the file should have, if they are known.

        Raises:
            DamagedError: The file has other checksums.
            OSError: The store gives back something else.
        """
        self._make_folder(name)
        found = list[int]()
        block = max(CHUNK, size // MOST_PARTS)
        with self._files.open(self._file(name), "wb", block_size=block) as target:
            for begin in range(0, size, CHUNK):
                piece = file.read(min(CHUNK, size - begin))
                found.append(zlib.crc32(piece))
                target.write(piece)
        meant = Checksums(size, crc32 or [])
        if crc32 is not None and meant != Checksums(size, found).folded(meant.chunk):
            last = posixpath.basename(name)
            raise DamagedError(f"{last} is damaged: its checksum is not the one in {Manifest.FILE}")
        self._files.invalidate_cache()
        if (stored := int(self._files.info(self._file(name))["size"])) != size:
            raise OSError(f"of {size} bytes of {name}, the store holds {stored}")
        if found:
            chunk = SystemRandom().randrange(len(found))
            piece = self.read(name, chunk * CHUNK, min((chunk + 1) * CHUNK, size))
            if zlib.crc32(piece) != found[chunk]:
                raise OSError(f"the store gives back another {name} than it was given")

    def put_small(self, name: str, content: bytes) -> None:
        """Write a small object all at once, and read it back.

        On a disk a kill could tear a file, so it is written under another name and renamed.

        Raises:
            OSError: The store gives back another one.
        """
        draft = f"{posixpath.dirname(name)}/{DRAFT}{posixpath.basename(name)}".lstrip("/")
        self._make_folder(name)
        self._files.pipe_file(self._file(draft if self._has_folders else name), content)
        if self._has_folders:
            self.move(draft, name)
        if self.read(name, 0, len(content) + 1) != content:
            raise OSError(f"the store gives back another {name} than it was given")

    def note(self, name: str, text: str) -> None:
        """Let a small object hold this text."""
        if self.noted(name) != text:
            self.put_small(name, text.encode())

    def noted(self, name: str) -> str | None:
        """The text of a small object; None if there is none."""
        with suppress(ValueError):
            return (self.read_small(name, SMALL) or b"").decode("ascii").strip() or None
        return None

    def move(self, name: str, to: str) -> None:
        """Rename an object to the name of another one, which it replaces at once."""
        self._files.mv(self._file(name), self._file(to))

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def remove_folder(self, name: str, drafts: Iterable[str]) -> None:
        """Remove a folder that holds at most drafts of these names; object stores have none."""
        if self._has_folders:
            for each in drafts:
                self.remove(f"{name}/{DRAFT}{each}")
            with suppress(Exception):
                self._files.rmdir(self._path(name))

    def drop_uploads(self, below: str) -> None:
        """Remove the parts of uploads below a name that a killed process left; S3 keeps them.

        Unfinished uploads are invisible, so errors are ignored: a store may forbid this.
        """
        if not hasattr(self._files, "list_multipart_uploads"):
            return
        bucket, _, prefix = self._root.partition("/")
        with suppress(Exception):
            for each in self._files.list_multipart_uploads(bucket):
                if each["Key"].startswith(f"{prefix}/{below}"):
                    self._files.abort_mpu(bucket, each["Key"], each["UploadId"])

    def said(self, error: BaseException) -> str:
        """The text of an error that may be shown: without secrets, and shortened."""
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return printable(" ".join(self.without_secrets(text).split()))[:500]

    def without_secrets(self, text: str) -> str:
        """The text without the values of the storage options, and without passwords."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return shown(text)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _file(self, name: str) -> str:
        """The path of an object; on a disk it is checked first, since opening a pipe would wait.

        Raises:
            NotRegularError: A link, a pipe or a device is at the path.
        """
        if self._is_local:
            with suppress(NotADirectoryError):  # the operation itself raises it
                refuse_odd(Path(self._path(name)))
        return self._path(name)

    def _make_folder(self, name: str) -> None:
        if self._has_folders:  # in an object store, this would make a bucket
            self._files.makedirs(posixpath.dirname(self._path(name)), exist_ok=True)


def check_address(url: str) -> None:
    """Check that fsspec knows such addresses, and that the library for them is installed.

    Raises:
        ModuleNotFoundError: fsspec or the library is not installed.
        ValueError: fsspec knows no such addresses.
    """
    if find_spec("fsspec") is None:
        raise ModuleNotFoundError('Mirror needs fsspec: pip install "camshaft[mirror]"')
    known = import_module("fsspec.registry")
    protocol = protocol_of(url)
    if protocol in LOCAL and re.match(r"[a-z][a-z0-9+.-]+:", url) and not url.startswith(PLACES):
        raise ValueError(f"{shown(url)!r} is no address; write one such as s3://bucket/run")
    if protocol in known.registry:
        return
    if protocol not in known.known_implementations:
        raise ValueError(
            f"{shown(url)!r}: fsspec knows no addresses that begin with {protocol}://; write one "
            "such as s3://bucket/run, gs://bucket/run, or file:///mnt/backup/run"
        )
    entry = known.known_implementations[protocol]
    if find_spec(entry["class"].split(".")[0]) is None:
        raise ModuleNotFoundError(f"{shown(url)}: {entry.get('err', 'its library is missing')}")


def shown(text: str) -> str:
    """An address, or a text with addresses, without a user's name and password in it.

    >>> shown("ftp://me:secret@host/run")
    'ftp://***@host/run'
    """
    return re.sub(r"://[^/@\s]*@", "://***@", text)


def local_path(url: str) -> Path | None:
    """The folder on a disk that an address names; None for other addresses."""
    if protocol_of(url) not in LOCAL:
        return None
    core = import_module("fsspec.core")
    _, path = core.url_to_fs(url)
    return Path(path).resolve()


def protocol_of(url: str) -> str:
    """The protocol of an address, such as `s3`; `file` for a plain path."""
    utils = import_module("fsspec.utils")
    return str(utils.get_protocol(url))


def _size(found: Mapping[str, Any]) -> int:
    is_odd = found["type"] not in ("file", "directory") or found.get("islink")
    return ODD if is_odd else int(found["size"])


def _secrets(options: Mapping[str, Any]) -> Generator[str, None, None]:
    """The texts in options that no message may show."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and len(value) > 3 and name not in HARMLESS:
            yield value
