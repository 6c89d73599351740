"""Brings a store up to date with a run's directory, one checkpoint at a time."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from ...checkpoint import Checkpoints, Checksums, Directory, Keep, Manifest, Saved
from ...files import budget, regular, remove_path
from ..results import COMPLETED, FOLDER, RESULT, results_in, results_of
from .fetching import copies_of_others, join, note_copies
from .listing import DRAFT, RUN, StoreListing, store_name_of
from .logs import logs_in
from .parts import Host
from .store import DRAFT as FILE_DRAFT
from .store import DamagedError, Store

logger: logging.Logger = logging.getLogger("camshaft")

WRITER = "WRITER"
"""Holds the name of the process that copies to a prefix: the last one that has begun."""
CANNOT_LINK = (errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS)


class GoneError(Exception):
    """A file of a checkpoint, or the link that keeps it, is gone before it could be copied."""


class Uploader:
    """Copies files that the store lacks, and removes checkpoints that no claim keeps.

    A checkpoint is seen in the store from the moment in which its manifest is there: the last of
    its files, put after the size and a part of each other one were compared with what the store
    gives back. A log is copied once, and again when it has changed; the new copy replaces the
    earlier one at once.
    """

    def __init__(
        self,
        store: Store,
        directory: Path,
        logs: list[str],
        host: Host | None = None,
        outbox: Path | None = None,
    ) -> None:
        """Copy nothing yet.

        Args:
            store: Where to.
            directory: That of the run.
            logs: The patterns of logs.
            host: Which part of each checkpoint to copy; None for all.
            outbox: Where the checkpoints to copy are, if that is not the directory; what is copied
                is removed there.
        """
        self.store: Store = store
        self.directory: Path = directory
        self._host, self._outbox = host, outbox
        self._prefix = host.prefix if host else ""
        self._is_first = host is None or host.number == 0
        self._patterns = logs
        self._copied: dict[str, tuple[int, int] | None] = {}
        """Size and time of the logs as they were when they were copied."""
        self._listing: StoreListing | None = None
        self._name = uuid4().hex
        self._verified = set[str]()
        """Files of the checkpoint under way that were copied and compared before a failure."""
        self._passed_over = set[str]()
        """The names of checkpoints that cannot be copied, and of results that are none."""

    def begin(self) -> None:
        """Find out what the store holds and whose run it is; remove unfinished copies.

        Raises:
            FileExistsError: The store holds another run, or what another machine has copied.
        """
        is_new = self._listing is None
        if not is_new:
            self._check_alone()
        listing = StoreListing(self.store)
        if self._is_first:
            needs_run_file = self._host is None
            run = join(self.store, self.directory, listing, needs_run_file=needs_run_file)
            if needs_run_file and (others := copies_of_others(listing, self.directory)):
                raise FileExistsError(
                    f"another machine has gone on with the run: {self.store.url} holds its "
                    f"{max(others)}; to go on from there, start the script again here"
                )
            self.store.note(RUN, run)
            for name in listing.sizes:
                is_word = name.startswith(f"{FOLDER}/") and name.endswith(f"/{COMPLETED}")
                if is_word and not (self.directory / name).exists():  # the run goes on
                    self.store.remove(name)
        # Of this process's own halves, those stay that it can go on with.
        here = () if is_new else Checkpoints(self._outbox or self.directory)
        stay = {store_name_of(each.manifest, listing.parts) for each in here}
        listing.drop_halves(
            lambda folder: folder.rpartition("/")[2] not in stay and self._tends(folder)
        )
        if is_new:
            self.store.note(f"{self._prefix}{WRITER}", self._name)
            self.store.drop_uploads(self._prefix)
        self._verified &= listing.sizes.keys()  # an unfinished copy may be this process's own
        self._listing = listing

    def step(self) -> bool:
        """Copy the newest checkpoint that is missing; False if all is there.

        Those that are to be evaluated come first, in their order: another machine, which goes on
        from the newest, awaits their results too.

        Raises:
            FileExistsError: Another run, or another machine, copies to the store.
            Exception: The store has failed, in any way; `begin` and the next call go on.
        """
        if self._listing is None:
            self.begin()
        assert self._listing is not None
        if missing := self._missing():
            awaited = (each for each in missing if self._is_to_be_evaluated(each))
            self._upload(next(awaited, missing[-1]), self._listing)
        else:
            self._check_alone()
            self._copy_logs()
        self._drop_unclaimed(self._listing)
        return bool(missing)

    def bring_results(self) -> None:
        """Bring the results of evaluations that were put into the store, if the run awaits any.

        A result in the directory stays: the run may have gone on without the other one. What cannot
        be one is left, with a warning.
        """
        for results in results_in(self.directory):
            for name, size in self.store.sizes(f"{FOLDER}/{results.folder.name}").items():
                place = self.directory / name
                is_result = RESULT.fullmatch(place.name) and place.parent == results.folder
                if not is_result or place.exists() or name in self._passed_over:
                    continue
                if not 0 < size <= budget.LARGEST_TEXT:  # it must not end the copying
                    self._passed_over.add(name)
                    logger.warning("%s/%s is no result: %d bytes", self.store.url, name, size)
                    continue
                content = self.store.read_small(name, budget.LARGEST_TEXT)
                if content is not None and results.put(place, content):
                    self._copied[name] = _sign(place)

    def _is_to_be_evaluated(self, saved: Saved) -> bool:
        return any(not (self.directory / each).exists() for each in results_of(saved.manifest))

    def _check_alone(self) -> None:
        """Check that nobody else has begun to copy to the store."""
        writer = self.store.noted(f"{self._prefix}{WRITER}")
        if writer is None:  # somebody has emptied the store
            self.store.note(f"{self._prefix}{WRITER}", self._name)
        elif writer != self._name:
            raise FileExistsError(
                f"another run, or this one on another machine, copies to {self.store.url} by now; "
                "give each run an address of its own, and let one machine train it at a time"
            )

    def has_missing(self) -> bool:
        """True if there is a checkpoint to copy."""
        return bool(self._missing())

    def behind(self) -> str:
        """A report on files that the store lacks; empty if it has all."""
        missing, logs = self._missing(), self._changed_logs()
        if not missing and not logs:
            return ""
        there = [m.iteration for f, m in self._parts() if f.startswith(self._prefix)]
        newest = f"of iteration {there[-1]}" if there else "none that is known"
        text = f"its newest checkpoint is {newest}"
        if missing:
            text += f", that of the directory of iteration {missing[-1].manifest.iteration}"
            text += f" ({len(missing)} to copy)"
        return text + (f"; {len(logs)} logs there are older" if logs else "")

    def _parts(self) -> list[tuple[str, Manifest]]:
        """The folders in the store and their manifests, in the order of writing."""
        parts = {} if self._listing is None else self._listing.parts.copy()
        return sorted(parts.items(), key=lambda item: item[1].number)

    def _missing(self) -> list[Saved]:
        # A copy: for a report, another thread asks, while this one notes what it has copied.
        known = {} if self._listing is None else self._listing.parts.copy()
        missing = list[Saved]()
        for each in Checkpoints(self._outbox or self.directory):
            name = store_name_of(each.manifest, known)
            copy = known.get(f"{self._prefix}{name}")
            is_there = copy is not None and copy.written == each.manifest.written
            if not is_there and name not in self._passed_over:
                missing.append(each)
            elif self._outbox:
                remove_path(each.path)
        return missing

    def _upload(self, saved: Saved, listing: StoreListing) -> None:
        name = store_name_of(saved.manifest, listing.parts)
        place, manifest = f"{self._prefix}{name}", saved.manifest.to_json().encode()
        files = {} if place in listing.parts else saved.manifest.files  # or it has metrics to copy
        own = self._host.own(files) if self._host else [*files]
        try:
            with linked(saved, own) as folder:  # a run that saves often drops it soon
                self._check_alone()
                self._copy_logs()
                self.store.put_small(f"{place}/{DRAFT}", manifest)
                for each in own:
                    if f"{place}/{each}" not in self._verified:
                        self._put(f"{place}/{each}", folder / each, files[each])
        except (GoneError, DamagedError) as error:
            # The links may be gone, and not the checkpoint: then the next step makes them anew.
            is_here = all((saved.path / each).exists() for each in own)
            if isinstance(error, DamagedError) or not is_here:
                self._passed_over.add(name)
                if saved.path.exists():
                    logger.warning("%s is not copied to %s: %s", saved.path, self.store.url, error)
            listing.drop(place, saved.manifest)
            self._verified.clear()
            return
        if self._host is None:
            note_copies(self.directory, {*listing, name})
        try:
            self.store.put_small(f"{place}/{Manifest.FILE}", manifest)
        except OSError:
            self.store.remove(f"{place}/{Manifest.FILE}")  # it may be another one than was given
            raise
        listing.add(place, saved.manifest)
        self._verified.clear()
        self.store.remove(f"{place}/{DRAFT}")
        what = "" if files else "the metrics of "
        logger.info("copied %s%s to %s/%s", what, saved.path, self.store.url, place)

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
            raise GoneError(f"{path.name} is missing") from None
        self._verified.add(name)

    def _drop_unclaimed(self, listing: StoreListing) -> None:
        """Remove copies that are not on the disk and that no claim of the newest one keeps.

        Of hosts that copy parts, some may be further than others: what is as new as the newest
        checkpoint that is whole stays.
        """
        here = Checkpoints(self._outbox or self.directory)
        if self._host:
            listing.look()
        elif not here:
            return
        parts = self._parts()
        newest = max((each.number for each in listing.values()), default=-1)
        manifests = [*(manifest for _, manifest in parts), *(each.manifest for each in here)]
        try:
            kept = Keep.of(manifests[-1].keep).kept(listing.values()) if manifests else set()
        except ValueError:  # the claims of a later version
            return
        stay = {store_name_of(saved.manifest, listing.parts) for saved in here}
        for place, manifest in parts:
            is_old = manifest.number < newest and manifest.number not in kept
            if is_old and place.rpartition("/")[2] not in stay and self._tends(place):
                listing.drop(place, manifest)

    def _tends(self, folder: str) -> bool:
        return self._host is None or self._host.tends(folder)

    def _copy_logs(self) -> None:
        """Copy each log that has changed."""
        for name in self._changed_logs():
            if name.endswith(f"/{COMPLETED}") and self._missing():
                continue  # who reads it takes what is there for all there is
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
        """The names of the logs that have changed since they were copied: the first host's."""
        return sorted(
            name
            for name in (logs_in(self.directory, self._patterns) if self._is_first else ())
            if name not in self._copied or self._copied[name] != _sign(self.directory / name)
        )


@contextmanager
def linked(saved: Saved, files: Iterable[str]) -> Generator[Path, None, None]:
    """A folder with files of a checkpoint, which stay there if the run drops the checkpoint.

    The files are hard links. On a disk without hard links, the folder is the checkpoint itself.

    Raises:
        GoneError: A file is not there; the run may have dropped the checkpoint already.
    """
    with Directory(saved.path.parent).scratch() as folder:
        try:
            for name in files:
                os.link(saved.path / name, folder / name, follow_symlinks=False)
        except FileNotFoundError as error:
            raise GoneError(f"{Path(error.filename).name} is missing") from None
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
