"""Brings a store up to date with a run's directory, one checkpoint at a time."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from ...checkpoint import MANIFEST, Checksums, Saved, checkpoints, keep_of, logs_in, scratch
from ...files import regular
from .copies import DRAFT, RUN, Copies, store_place_of
from .fetching import join
from .store import DRAFT as FILE_DRAFT
from .store import DamagedError, Store

logger: logging.Logger = logging.getLogger("camshaft")

WRITER = "WRITER"
"""Holds the name of the process that copies to the store: the last one that has begun."""
CANNOT_LINK = (errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS)


class GoneError(Exception):
    """A checkpoint was dropped from the disk before it could be copied."""


class Uploader:
    """Copies files that the store lacks, and removes checkpoints that no claim keeps.

    A checkpoint is seen in the store from the moment in which its manifest is there: the last of
    its files, put after the others were compared with what the store gives back. A log is copied
    once, and again when it has changed; the new copy replaces the earlier one at once.
    """

    is_named: ClassVar[bool] = True
    """False if the directory need not name its run: see `join`."""

    def __init__(self, store: Store, directory: Path, logs: list[str]) -> None:
        self.store: Store = store
        self.directory: Path = directory
        self._patterns = logs
        self._copied: dict[str, tuple[int, int] | None] = {}
        """Size and time of the logs as they were when they were copied."""
        self._copies: Copies | None = None
        self._name = uuid4().hex
        self._verified = set[str]()
        """Files of the checkpoint under way that were copied and compared before a failure."""
        self._passed_over = set[str]()
        """The places of checkpoints that cannot be copied."""

    def begin(self) -> None:
        """Find out what the store holds and whose run it is; remove unfinished copies.

        Raises:
            FileExistsError: The store holds another run.
        """
        is_first = self._copies is None
        if not is_first:
            self._check_alone()
        copies = Copies(self.store)
        run = join(self.store, self.directory, copies, is_named=self.is_named)
        self.store.note(RUN, run)
        if is_first:
            self.store.note(WRITER, self._name)
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
        if missing := self._missing():
            self._upload(missing[-1], self._copies)
        else:
            self._check_alone()
            self._copy_logs()
        self._drop_unclaimed(checkpoints(self.directory), self._copies)
        return bool(missing)

    def _check_alone(self) -> None:
        """Check that nobody else has begun to copy to the store."""
        writer = self.store.noted(WRITER)
        if writer is None:  # somebody has emptied the store
            self.store.note(WRITER, self._name)
        elif writer != self._name:
            raise FileExistsError(
                f"another run, or this one on another machine, copies to {self.store.url} by now; "
                "give each run an address of its own, and let one machine train it at a time"
            )

    def is_new(self) -> bool:
        """True if there is a checkpoint to copy."""
        return bool(self._missing())

    @property
    def finished(self) -> int:
        """How many orders to copy are carried out, if all are: hosts together are given orders."""
        return 0

    def behind(self) -> str:
        """A report on files that the store lacks; empty if it has all."""
        missing, logs = self._missing(), self._changed_logs()
        if not missing and not logs:
            return ""
        there = self._copies.in_order() if self._copies else []
        newest = f"of iteration {there[-1][1].iteration}" if there else "none that is known"
        text = f"its newest checkpoint is {newest}"
        if missing:
            text += f", that of the directory of iteration {missing[-1].manifest.iteration}"
            text += f" ({len(missing)} to copy)"
        return text + (f"; {len(logs)} logs there are older" if logs else "")

    def _missing(self) -> list[Saved]:
        known = {*(self._copies or ()), *self._passed_over}
        return [
            each
            for each in checkpoints(self.directory)
            if store_place_of(each.manifest) not in known
        ]

    def _upload(self, saved: Saved, copies: Copies) -> None:
        place, manifest = store_place_of(saved.manifest), saved.manifest.to_json().encode()
        try:
            with self._kept(saved) as folder:  # a run that saves often drops it soon
                self._check_alone()
                self._copy_logs()
                self.store.put_small(f"{place}/{DRAFT}", manifest)
                self._put_files(place, saved.manifest.files, folder)
        except (GoneError, DamagedError) as error:
            self._passed_over.add(place)
            if isinstance(error, DamagedError):
                logger.warning("%s is not copied to %s: %s", saved.path, self.store.url, error)
            copies.drop(place, saved.manifest)
            return
        try:
            self.store.put_small(f"{place}/{MANIFEST}", manifest)
        except OSError:
            self.store.remove(f"{place}/{MANIFEST}")  # it may be another one than was given
            raise
        copies[place] = saved.manifest
        self._verified.clear()
        self.store.remove(f"{place}/{DRAFT}")
        logger.info("copied %s to %s/%s", saved.path, self.store.url, place)

    def _kept(self, saved: Saved) -> AbstractContextManager[Path]:
        """A folder in which the files of a checkpoint stay while they are copied."""
        return linked(saved)

    def _put_files(self, place: str, files: Mapping[str, Checksums], folder: Path) -> None:
        for name, sums in files.items():
            if f"{place}/{name}" not in self._verified:
                self._put(f"{place}/{name}", folder / name, sums)

    def _put(self, name: str, path: Path, sums: Checksums) -> None:
        """Copy a file of a checkpoint, and compare it with its checksums on the way."""
        try:
            with regular(path) as file:
                if os.fstat(file.fileno()).st_size != sums.size:
                    raise DamagedError(f"{path.name} has another size than its manifest says")
                self.store.put(name, file, sums.size, sums.crc32)
        except FileNotFoundError:
            if path.exists():  # the store, not the disk, lacks something
                raise
            raise GoneError from None
        self._verified.add(name)

    def _drop_unclaimed(self, here: list[Saved], copies: Copies) -> None:
        """Remove copies that are not on the disk and that no claim of the newest one keeps."""
        if not here:
            return
        with suppress(ValueError):  # the claims of a later version
            keep = keep_of(here[-1].manifest.keep)
            kept = keep.kept(copies.values())
            on_disk = {store_place_of(saved.manifest) for saved in here}
            for place, manifest in copies.in_order():
                if place not in on_disk and manifest.number not in kept:
                    copies.drop(place, manifest)

    def _copy_logs(self) -> None:
        """Copy each log that has changed."""
        for name in self._changed_logs():
            path = self.directory / name
            sign = _sign(path)
            folder, _, last = name.rpartition("/")
            draft = f"{folder}/{FILE_DRAFT}{last}".lstrip("/")
            try:
                with regular(path) as file:
                    self.store.put(draft, file, os.fstat(file.fileno()).st_size)
                    self.store.move(draft, name)
            except FileNotFoundError:
                if path.exists():
                    raise
                continue  # moved aside meanwhile
            self._copied[name] = sign

    def _changed_logs(self) -> list[str]:
        """The names of the logs that have changed since they were copied."""
        return sorted(
            name
            for name in logs_in(self.directory, self._patterns)
            if name not in self._copied or self._copied[name] != _sign(self.directory / name)
        )


@contextmanager
def linked(saved: Saved) -> Generator[Path, None, None]:
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


def _sign(path: Path) -> tuple[int, int] | None:
    """The size and the time of a file, by which a change is noticed; None if it is gone."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns
