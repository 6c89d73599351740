"""Brings a store up to date with a run's directory, one checkpoint at a time."""

from __future__ import annotations

import errno
import logging
import os
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from ..checkpoint import CHUNK, MANIFEST, Checksums, Saved, checkpoints, keep_of, scratch
from ..files import regular
from .copies import DRAFT, RUN, WRITER, Copies, Copy, key_of, note, noted, store_place_of
from .fetching import join
from .logs import LogCopies
from .store import Store

logger = logging.getLogger("camshaft")

CANNOT_LINK = (errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS)


class DamagedError(Exception):
    """A file on the disk is not what its manifest says."""


class GoneError(Exception):
    """A checkpoint was dropped from the disk before it could be copied."""


class Uploader:
    """Copies what is on the disk and not in the store, and removes what no claim keeps.

    A checkpoint is seen in the store from the moment in which its manifest is there: the last of
    its files, put after the others were compared with what the store gives back.
    """

    def __init__(self, store: Store, directory: Path, logs: list[str]) -> None:
        self.store, self.directory = store, directory
        self._logs = LogCopies(store, directory, logs)
        self._copies: Copies | None = None
        self._name = uuid4().hex
        self._verified = set[str]()
        """Files of the checkpoint under way that were copied and compared before a failure."""
        self._passed_over = set[str]()
        """The keys of checkpoints that cannot be copied."""

    def begin(self) -> None:
        """Find out what the store holds and whose run it is; remove unfinished copies.

        Raises:
            FileExistsError: The store holds another run.
        """
        is_first = self._copies is None
        if not is_first:
            self._check_alone()
        copies = Copies(self.store)
        note(self.store, RUN, join(self.store, self.directory, copies))
        if is_first:
            note(self.store, WRITER, self._name)
            copies.drop_halves()
            self.store.drop_uploads()
        self._verified &= copies.sizes.keys()  # an unfinished copy may be this process's own
        self._copies = copies

    def step(self) -> bool:
        """Copy the newest checkpoint that is missing; False if all is there.

        Raises:
            FileExistsError: Another run, or another machine, copies to the store.
            Exception: The store has failed, in any way; `begin` and the next call go on.
        """
        if self._copies is None:
            self.begin()
        assert self._copies is not None
        if missing := self._missing(checkpoints(self.directory)):
            self._upload(missing[-1], self._copies)
        else:
            self._check_alone()
            self._logs.copy()
        self._drop_unclaimed(checkpoints(self.directory), self._copies)
        return bool(missing)

    def _check_alone(self) -> None:
        """Check that nobody else has begun to copy to the store."""
        writer = noted(self.store, WRITER)
        if writer is None:  # somebody has emptied the store
            note(self.store, WRITER, self._name)
        elif writer != self._name:
            raise FileExistsError(
                f"another run, or this one on another machine, copies to {self.store.url} by now; "
                "give each run an address of its own, and let one machine train it at a time"
            )

    def is_new(self) -> bool:
        """True if there is a checkpoint to copy."""
        return bool(self._missing(checkpoints(self.directory)))

    def behind(self) -> str:
        """What the store lacks; empty if nothing."""
        missing, logs = self._missing(checkpoints(self.directory)), self._logs.behind()
        if not missing and not logs:
            return ""
        there = self._copies.in_order() if self._copies else []
        newest = f"of iteration {there[-1].manifest.iteration}" if there else "none that is known"
        told = f"its newest checkpoint is {newest}"
        if missing:
            told += f", that of the directory of iteration {missing[-1].manifest.iteration}"
            told += f" ({len(missing)} to copy)"
        return told + (f"; {len(logs)} logs there are older" if logs else "")

    def _missing(self, here: list[Saved]) -> list[Saved]:
        known = {*(self._copies or ()), *self._passed_over}
        return [saved for saved in here if key_of(saved.manifest) not in known]

    def _upload(self, saved: Saved, copies: Copies) -> None:
        copy = Copy(store_place_of(saved.manifest), saved.manifest)
        manifest = saved.manifest.to_json().encode()
        try:
            with _held(saved) as folder:  # a run that saves often drops it soon
                self._check_alone()
                self._logs.copy()
                self.store.put_whole(f"{copy.place}/{DRAFT}", manifest)
                for name, sums in saved.manifest.files.items():
                    if f"{copy.place}/{name}" not in self._verified:
                        self._put(f"{copy.place}/{name}", folder / name, sums)
        except (GoneError, DamagedError) as error:
            self._passed_over.add(copy.key)
            if isinstance(error, DamagedError):
                logger.warning("%s is not copied to %s: %s", saved.path, self.store.url, error)
            copies.drop(copy)
            return
        self.store.put_whole(f"{copy.place}/{MANIFEST}", manifest)
        if self.store.read(f"{copy.place}/{MANIFEST}", 0, len(manifest) + 1) != manifest:
            self.store.remove(f"{copy.place}/{MANIFEST}")
            raise OSError(f"the store gives back another {copy.place}/{MANIFEST} than it was given")
        copies.add(copy)
        self._verified.clear()
        self.store.remove(f"{copy.place}/{DRAFT}")
        logger.info("copied %s to %s/%s", saved.path, self.store.url, copy.place)

    def _put(self, name: str, path: Path, sums: Checksums) -> None:
        """Copy a file, and compare its size and one chunk of it with what the store gives back."""
        try:
            with regular(path) as file:
                self.store.put(name, _checked(file, sums, path.name), sums.size)
        except FileNotFoundError:
            if path.exists():  # the store, not the disk, lacks something
                raise
            raise GoneError from None
        self.store.compare(name, sums.size, sums.crc32)
        self._verified.add(name)

    def _drop_unclaimed(self, here: list[Saved], copies: Copies) -> None:
        """Remove copies that are not on the disk and that no claim of the newest one keeps."""
        if not here:
            return
        with suppress(ValueError):  # the claims of a later version
            keep = keep_of(here[-1].manifest.keep)
            kept = keep.kept(copy.manifest for copy in copies.values())
            on_disk = {key_of(saved.manifest) for saved in here}
            for copy in copies.in_order():
                if copy.key not in on_disk and copy.manifest.number not in kept:
                    copies.drop(copy)


@contextmanager
def _held(saved: Saved) -> Generator[Path, None, None]:
    """A folder with the checkpoint's files, which stay there if the run drops the checkpoint.

    The files are hard links. On a disk without hard links, the folder is the checkpoint itself.

    Raises:
        GoneError: The run has dropped the checkpoint already.
    """
    with scratch(saved.path.parent) as folder:
        try:
            for name in (*saved.manifest.files, MANIFEST):
                os.link(saved.path / name, folder / name, follow_symlinks=False)
        except FileNotFoundError:
            raise GoneError from None
        except OSError as error:
            if error.errno not in CANNOT_LINK:
                raise
            yield saved.path
            return
        yield folder


def _checked(file: BinaryIO, sums: Checksums, name: str) -> Iterator[bytes]:
    """The bytes of a file, in chunks that are compared with their checksums.

    Raises:
        DamagedError: The file has other bytes.
    """
    if os.fstat(file.fileno()).st_size != sums.size:
        raise DamagedError(f"{name} has another size than its manifest says")
    for expected in sums.crc32:
        piece = file.read(CHUNK)
        if zlib.crc32(piece) != expected:
            raise DamagedError(f"{name} is damaged: its checksum is not the one in {MANIFEST}")
        yield piece
