"""A directory of checkpoints that a run writes to: locked, written durably, and tidied."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import count
from os.path import lexists
from pathlib import Path
from shutil import disk_usage
from sys import intern

from ....engine import ranks
from ...files import (
    beside,
    created,
    locked,
    make_directory,
    put_in_place,
    regular,
    remove_path,
    synchronise,
)
from ..format import (
    MANY,
    MOST_CHECKSUMS,
    BrokenCheckpoint,
    Checksums,
    Keep,
    Manifest,
    Payload,
    TensorInfo,
    UnreadableError,
    folded_together,
    needing_memory,
)
from .catalogue import Checkpoints, Verify, chosen, names_in, next_number, saved_at, scan
from .files import need_space, read_back, read_manifest_back, sweep_run, write_files
from .saved import Saved

logger: logging.Logger = logging.getLogger("camshaft")

LATEST = "LATEST"
LONGEST = 300
"""The most bytes of `LATEST` that are read; it holds one name."""
PATIENCE = 30.0
"""Seconds that a restarted rank 0 waits for its predecessor, which may still be ending."""
NO_SUMS = Checksums(0, [])
OF_OTHERS = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors of a directory that this user may not write to."""


class Directory:
    """A directory of checkpoints that one run writes to, also if somebody removes it meanwhile."""

    def __init__(self, path: Path) -> None:
        """Lock nothing, and read nothing yet."""
        self.path = path
        self._held = ExitStack()
        self._is_held: Callable[[], bool] = lambda: False
        self._known: dict[str, tuple[object, Saved]] = {}
        """By name: the checkpoints, and what changes if another one has the name."""
        self._told: set[Path] = set()
        """The checkpoints that could not be hidden."""

    @property
    def names(self) -> list[str]:
        """The names of the checkpoints, broken ones too, in their order."""
        return names_in(self.path)

    def newest_good(self) -> Saved | None:
        """The newest good checkpoint, which all ranks look for together; None if there is none."""

        def choose(verify: Verify) -> Saved | None:
            with suppress(ValueError):  # all are broken
                return Checkpoints(self.path, verify).latest()
            return None

        return chosen(choose)

    def lock(self) -> None:
        """Make and lock the directory, and remove unfinished files of killed runs.

        On several ranks this waits for the lock: a launcher restarts all ranks when one has failed,
        and the rank 0 of before may still be ending.
        """
        patience = PATIENCE if ranks.world_size() > 1 else 0.0
        try:
            make_directory(self.path)
            self._is_held = self._held.enter_context(locked(self.path, patience))
        except OSError as error:
            if error.errno in OF_OTHERS:
                error.add_note(
                    f"A run needs to write to {self.path}. To go on from checkpoints that you may "
                    "only read: Checkpoint('a directory of your own', resume=True, "
                    f"parent={str(self.path)!r})"
                )
            raise
        sweep_run(self.path)

    def renew(self) -> None:
        """Make and lock the directory anew if somebody has removed it, or moved it elsewhere."""
        if self._is_held():
            return
        self._held.close()
        self.lock()
        logger.warning(
            "%s, or the file LOCK in it, was removed or moved while the run wrote to it; the run "
            "goes on there, and earlier checkpoints are where they are now, if anywhere",
            self.path,
        )

    def unlock(self) -> None:
        """Let other runs write there."""
        self._held.close()

    def scan(self) -> list[Saved]:
        """The checkpoints that are there now, in the order of writing, without broken ones.

        A manifest is read when it is new. Of its files, only the names are kept: all that is to
        know of thousands of ranks would take much memory.
        """
        found: dict[str, tuple[object, Saved]] = {}
        for name in names_in(self.path):
            with suppress(OSError, BrokenCheckpoint):
                mark = _mark(self.path / name)
                before, saved = self._known.get(name, (None, None))
                if saved is None or mark != before:
                    saved = _without_sums(saved_at(self.path / name))
                found[name] = mark, saved
        self._known = found
        return sorted((each for _, each in found.values()), key=lambda each: each.manifest.number)

    def need_space(self, size: int) -> None:
        """Raise an OSError if there is no space for so many bytes."""
        need_space(self.path, size)

    @contextmanager
    def scratch(self) -> Generator[Path, None, None]:
        """A temporary folder inside, which the next start removes if this process is killed."""
        temporary = beside(self.path / "iteration-0", "tmp")
        temporary.mkdir()
        try:
            yield temporary
        finally:
            remove_path(temporary)

    def write(
        self, payloads: Mapping[str, Payload], manifest: Manifest, before: Saved | None = None
    ) -> Saved:
        """Write a whole checkpoint or nothing, and wait for the disk: see `commit`."""
        manifest.refuse_large(payloads, 1)
        place, _ = self.place_for(manifest.iteration, before)
        temporary = beside(place, "tmp")
        try:
            with telling_failures(place):
                make_directory(self.path)
                files = write_part(temporary, payloads, {}, before)
            return self.commit(temporary, replace(manifest, files=files), before)
        except BaseException:
            remove_path(temporary)
            raise

    def commit(
        self,
        temporary: Path,
        manifest: Manifest,
        before: Saved | None = None,
        *,
        is_whole: bool = True,
        place: Path | None = None,
    ) -> Saved:
        """Write the manifest of all ranks' files, and rename their directory to its final name.

        After an error, what the ranks have written is still there, for another attempt.

        Args:
            temporary: Where the files are.
            manifest: Of the checkpoint. It has a number only if an older one gets other files and
                keeps its place in the order of writing.
            before: A checkpoint of the run; if it is of the same iteration, the new one gets its
                path, and the old one stays under another name until it is dropped.
            is_whole: False if other hosts have some of the files, on disks of their own.
            place: A free path for it; by default one named by the iteration.
        """
        is_new, aside = not manifest.number, None
        if place is None:
            place, aside = self.place_for(manifest.iteration, before)
        with telling_failures(place):
            make_directory(self.path)
            number, files = manifest.number or next_number(self.scan()), manifest.files
            sums = sum(len(each.crc32) for each in files.values())
            is_much = len(files) > MANY or sums > MOST_CHECKSUMS
            files = folded_together(files) if is_much else dict(files)
            manifest = replace(manifest, number=number, files=files)
            saved = _appear(temporary, place, aside, manifest, is_whole)
        with suppress(OSError):
            self._known[place.name] = _mark(place), _without_sums(saved)
        if is_new:
            self.write_latest(place)
        return saved

    def hide_unclaimed(
        self,
        keep: Keep,
        broken: Collection[str] = (),
        spared: Path | None = None,
        held: Collection[int] = (),
    ) -> list[Path]:
        """Hide the checkpoints that no claim keeps, except broken ones and the spared one.

        The last ones that were written of the iterations that are `held` stay too.
        """
        found = [each for each in self.scan() if each.path.name not in broken]
        newest = {each.manifest.iteration: each.manifest.number for each in found}
        kept = {*keep.kept(each.manifest for each in found), *map(newest.get, held)}
        others = (each for each in found if each.manifest.number not in kept)
        return self.hide(each for each in others if each.path.resolve() != spared)

    def add_metrics(
        self, saved: Saved, metrics: Mapping[str, float], written: Mapping[str, int]
    ) -> None:
        """Give a checkpoint metrics that were measured after it was written, all at once."""
        manifest = saved_at(saved.path).manifest  # of those that `scan` knows, sums are left out
        metrics, written = manifest.metrics | {**metrics}, manifest.written | {**written}
        temporary = beside(saved.path, "tmp")  # beside it, where the next start sweeps
        try:
            with created(temporary) as file:
                file.write(replace(manifest, metrics=metrics, written=written).to_json().encode())
            synchronise(temporary)
            temporary.replace(saved.path / Manifest.FILE)
        finally:
            remove_path(temporary)
        synchronise(saved.path)

    def hide(self, unwanted: Iterable[Saved]) -> list[Path]:
        """Rename checkpoints, so that their names are gone: the hidden paths, to be removed.

        A checkpoint with files that Camshaft did not write stays, with a warning.
        """
        paths = list[Path]()
        for each in unwanted:
            try:
                if foreign := each.foreign:
                    advice = "move them away"
                    raise OSError(f"it holds files that are not Camshaft's: {foreign}; {advice}")
                path = beside(each.path, "del")
                each.path.rename(path)
                paths.append(path)
            except OSError as error:
                if each.path not in self._told:  # each save tries again
                    logger.warning(
                        "the checkpoint %s is no longer wanted, but stays: %s", each.path, error
                    )
                self._told.add(each.path)
        return paths

    def drop(self, saved: Saved) -> bool:
        """Remove a checkpoint; False, with a warning, if it stays: see `hide`."""
        paths = self.hide([saved])
        for path in paths:
            remove_path(path)
        return bool(paths)

    def set_aside(self, but: Collection[Path] = ()) -> Path | None:
        """Move checkpoints, broken ones too, to a new directory inside; None if there are none."""
        found, broken = scan(self.path)
        names = [*(each.path.name for each in reversed(found) if each.path not in but), *broken]
        if not names:
            return None
        place = next(p for n in count(1) if not lexists(p := self.path / f"earlier.{n}"))
        make_directory(place)
        for name in [*names, LATEST]:
            with suppress(FileNotFoundError):  # LATEST is for people, who may have removed it
                (self.path / name).rename(place / name)
        synchronise(place)
        synchronise(self.path)
        return place

    @property
    def latest(self) -> str | None:
        """The name in `LATEST`; None if it cannot be read."""
        with suppress(OSError, ValueError), regular(self.path / LATEST) as file:
            return file.read(LONGEST).decode().strip()
        return None

    def write_latest(self, place: Path) -> None:
        """Name the newest checkpoint in `LATEST`: for people only, so an error is a warning."""
        try:
            put_in_place(place.with_name(LATEST), f"{place.name}\n".encode())
        except OSError as error:
            logger.warning("%s is saved, but %s does not say so: %s", place, LATEST, error)

    def place_for(self, iteration: int, before: Saved | None) -> tuple[Path, Path | None]:
        """The path for a checkpoint, and the path to which an older one there is moved."""
        unused = self.unused(iteration)
        if before is None or before.manifest.iteration != iteration or not before.path.exists():
            return unused, None
        return (unused, None) if before.foreign else (before.path, unused)

    def unused(self, iteration: int, taken: Collection[str] = ()) -> Path:
        """A free path: an older checkpoint of the iteration is dropped only after the save.

        Names that are `taken` are not free either, such as those in the directories of other hosts.
        """
        name = f"iteration-{iteration:010d}"
        names = (name if number == 1 else f"{name}.{number}" for number in count(1))
        paths = (self.path / each for each in names if each not in taken)
        return next(path for path in paths if not lexists(path))


def _without_sums(saved: Saved) -> Saved:
    names = dict.fromkeys(map(intern, saved.manifest.files), NO_SUMS)
    return replace(saved, manifest=replace(saved.manifest, files=names))


def _mark(path: Path) -> object:
    """Changes if another directory or manifest is there; of a link it is that of the link."""
    status = (path / Manifest.FILE).lstat()
    return path.lstat().st_ino, status.st_ino, status.st_size, status.st_mtime_ns


def write_part(
    temporary: Path,
    payloads: Mapping[str, Payload],
    meant: Mapping[str, TensorInfo],
    before: Saved | None = None,
) -> Mapping[str, Checksums]:
    """Write the files of a rank into a directory that all ranks write to; wait for the disk.

    They have to hold the pieces that are `meant`. If that fails, none of these files stays.
    """
    earlier, known = (before.path, before.manifest.files) if before else (None, {})
    with needing_memory("write its files"):
        if not temporary.is_dir():  # thousands of ranks would ask for one change of one directory
            temporary.mkdir(exist_ok=True)
        try:
            files = write_files(temporary, payloads, earlier, known)
            read_back(temporary, files, meant)
        except BaseException:
            for name in payloads:
                with suppress(OSError):
                    (temporary / name).unlink()
            raise
    return files


def _appear(
    temporary: Path, place: Path, aside: Path | None, manifest: Manifest, is_whole: bool
) -> Saved:
    """Write the manifest, and durably rename the directory; an older one goes `aside` first."""
    (temporary / Manifest.FILE).unlink(missing_ok=True)  # left by an attempt that failed
    text = manifest.to_json()
    with created(temporary / Manifest.FILE) as file:
        file.write(text.encode())
    synchronise(temporary / Manifest.FILE)
    read_manifest_back(temporary, manifest, text, is_whole=is_whole)
    synchronise(temporary)
    with _named_back(temporary, place, aside):
        if aside is not None:
            place.rename(aside)
            synchronise(place.parent)
        temporary.rename(place)
        synchronise(place.parent)
    return Saved(place, manifest)


@contextmanager
def _named_back(temporary: Path, place: Path, aside: Path | None) -> Generator[None, None, None]:
    """After an error, undo a rename that is not yet durable, and restore the old checkpoint."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            if not lexists(temporary) and (aside is None or lexists(aside)):
                place.rename(temporary)
            if aside is not None and lexists(aside):
                aside.rename(place)
        raise


@contextmanager
def telling_failures(place: Path) -> Generator[None, None, None]:
    """Name the checkpoint in an OSError from inside, and the free space of the disk."""
    try:
        yield
    except OSError as error:
        free = "unknown"
        with suppress(OSError):
            free = f"{disk_usage(place.parent).free:,}"
        kind = UnreadableError if isinstance(error, UnreadableError) else OSError
        is_hidden = ".tmp-" in str(error.filename)  # which is swept, and nobody looks for
        said = f"[Errno {error.errno}] {error.strerror}" if is_hidden else error
        failure = kind(
            f"could not write the checkpoint {place}: {said} (bytes free there: {free}). Older "
            "ones are as they were"
        )
        failure.errno = error.errno
        raise failure from error
