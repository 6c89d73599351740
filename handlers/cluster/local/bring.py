"""The newest checkpoint of which every file is somewhere: put together before the run begins.

A holder has files of checkpoints: the disk of a host, or an object store. Whether a checkpoint is
whole is decided here, from what all of them have together. It goes to the directory that all hosts
share, or if there is none, to that of each host. So a lost host is replaced by the others, and
hosts with empty disks start from the store.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from ....engine import ranks
from ...checkpoint.directory import Checkpoints, Directory, Saved, chosen
from ...checkpoint.format import BrokenCheckpoint, Keep, Manifest
from ...files import beside, named_again, remove_path, synchronise
from .hosts import Hosts

logger: logging.Logger = logging.getLogger("camshaft")


class CheckpointId(NamedTuple):
    """What tells a checkpoint from others, the same on all hosts; a later one is greater."""

    start: int
    iteration: int
    number: int
    digest: str
    run: str

    @classmethod
    def of(cls, manifest: Manifest) -> CheckpointId:
        """That of the checkpoint with this manifest."""
        digest = hashlib.sha256(manifest.to_json().encode()).hexdigest()
        return cls(manifest.start, manifest.iteration, manifest.number, digest, manifest.run)

    @property
    def age(self) -> tuple[int, int]:
        """How far the run had come; each directory has numbers of its own."""
        return self.start, self.iteration

    def is_before(self, other: CheckpointId) -> bool:
        """True if start, iteration and number are all smaller. `keep` compares numbers only."""
        return self[:3] < other[:3] and self.number < other.number


class Holder(Protocol):
    """Where files of checkpoints are."""

    def manifests(self) -> list[Manifest]:
        """Those of the checkpoints of which it has files."""
        ...

    def has(self, manifest: Manifest) -> set[str]:
        """The files of a checkpoint that it has; a store's may turn out to be damaged."""
        ...

    def give(self, manifest: Manifest, name: str, path: Path) -> None:
        """Bring a file to a path of this host.

        Raises:
            BrokenCheckpoint: What arrives is damaged.
            OSError: The disk is full, or the holder cannot be read.
        """
        ...


class ObjectStore(Holder, Protocol):
    """What a `Mirror` does for hosts that share no directory; each first rank of a host has one."""

    def run(self) -> str:
        """On rank 0: the name of the run in the store."""
        ...

    def is_free(self) -> bool:
        """True if this host has copied all that it was given."""
        ...

    def upload(self, saved: Saved) -> None:
        """Copy this host's files of a checkpoint, which stay there until then."""
        ...


class Disk:
    """The checkpoints in the directory of this host, for its first rank; others see none."""

    def __init__(self, directory: Path, hosts: Hosts) -> None:
        self.held: dict[CheckpointId, Saved] = held_in(directory) if hosts.is_first_here else {}

    def manifests(self) -> list[Manifest]:
        """Those of all checkpoints there."""
        return [each.manifest for each in self.held.values()]

    def has(self, manifest: Manifest) -> set[str]:
        """The files of a checkpoint that are here, with the right checksums."""
        found, saved = set[str](), self.held.get(CheckpointId.of(manifest))
        for name, expected in manifest.files.items() if saved else ():
            with suppress(OSError, ValueError):
                if expected.fit(saved.path / name):  # type: ignore[union-attr]
                    found.add(name)
        return found

    def give(self, manifest: Manifest, name: str, path: Path) -> None:
        """Give a file another name, or copy it to another disk."""
        named_again(self.path(manifest, name), path)

    def path(self, manifest: Manifest, name: str) -> Path:
        """Where a file is that this host has."""
        return self.held[CheckpointId.of(manifest)].path / name


def held_in(directory: Path) -> dict[CheckpointId, Saved]:
    """The checkpoints of which this host holds a part."""
    return {CheckpointId.of(each.manifest): each for each in Checkpoints(directory)}


class Search:
    """The checkpoints that the holders of all ranks have files of; all ranks call its methods."""

    def __init__(self, directory: Path, hosts: Hosts, store: Holder | None = None) -> None:
        with ranks.on_all_ranks(f"read {directory}"):
            self.disk: Disk = Disk(directory, hosts)
            self._holders: list[Holder] = [self.disk]
            self._holders += [store] if store and ranks.rank() == 0 else []
            lists = [[CheckpointId.of(m) for m in each.manifests()] for each in self._holders]
            known = [m for each in self._holders for m in each.manifests()]
            self._known = {CheckpointId.of(each): each for each in known}
        gathered = ranks.gathered(lists)
        self.found: list[CheckpointId] = sorted(
            {each for of_rank in gathered for some in of_rank for each in some}, reverse=True
        )
        """All of them, the newest first."""
        self.in_store: list[CheckpointId] = sorted(
            (each for some in gathered[0][1:] for each in some), reverse=True
        )

    def whole(self, wanted: CheckpointId) -> tuple[Manifest, list[set[str]]] | None:
        """If every file of a checkpoint is somewhere: its manifest, and what each rank's disk has.

        Else None, with a warning.
        """
        own = self._known.get(wanted)
        texts = ranks.gathered(own.to_json() if own else "")
        manifest = Manifest.of_json(next(filter(None, texts)))
        parts = ranks.gathered([sorted(each.has(manifest)) for each in self._holders])
        missing = sorted(manifest.files.keys() - {n for of in parts for some in of for n in some})
        if not missing:
            return manifest, [set(of_rank[0]) for of_rank in parts]
        if ranks.rank() == 0:
            logger.warning(
                "passed over, since no host of this start has all of it: the checkpoint of "
                "iteration %d: %d of %d files are missing or damaged, such as %s",
                *(wanted.iteration, len(missing), len(manifest.files), missing[0]),
            )
        return None

    def run(self, newest: CheckpointId | None, directory: Path, *, is_wanted: bool) -> str:
        """The run that goes on: that of the shared directory, or the only one that is held."""
        if newest is not None and newest.run:
            return newest.run
        runs = sorted({each.run for each in self.found} - {""})
        if len(runs) > 1 and is_wanted:
            raise ValueError(
                f"the hosts hold checkpoints of {len(runs)} runs in {directory}, and nothing tells "
                "which of them goes on; move those of the others away"
            )
        return runs[0] if runs else ""


def bring_newest(
    shared: Directory, own: Directory, hosts: Hosts, keep: Keep, *, is_wanted: bool
) -> tuple[str, int]:
    """Put the newest checkpoint that is whole somewhere into the shared directory.

    All ranks call this. Afterwards the local directories are empty: what the shared one has, too,
    is dropped, and other checkpoints are moved aside.

    Args:
        shared: The directory that all hosts share, which this run has locked.
        own: The local directory of this host, which this run has locked.
        hosts: The hosts.
        keep: The claims in the shared directory.
        is_wanted: False to bring none, since the run begins anew or from another checkpoint.

    Returns:
        The name of the run, which is empty for a new one, and the count of its starts so far.

    Raises:
        ValueError: The hosts hold checkpoints of several runs, or none of one is whole, and the
            shared directory is empty.
    """
    directory, search = own.path, Search(own.path, hosts)
    disk = search.disk
    if search.found:
        newest = chosen(partial(_newest_good, shared.path))
    else:
        newest = _newest(Checkpoints(shared.path))
    run = search.run(newest, directory, is_wanted=is_wanted)
    tried = [each for each in search.found if each.run == run]
    starts = max((each.start for each in [*tried, *([newest] if newest else [])]), default=0)
    if is_wanted:
        if len(tried) < len(search.found):
            logger.warning("checkpoints of another run are passed over in %s", directory)
        for each in tried:
            if newest is not None and each.age <= newest.age:
                break
            if found := search.whole(each):
                _put_together(*found, disk, shared, keep)
                newest = each
                break
        if tried and newest is None:
            raise ValueError(
                f"no checkpoint in {directory} is whole on the hosts of this start together, "
                f"{shared.path} holds none, and a run does not silently start anew. Start it on "
                "the hosts that it ran on; or, to start a new run, move these directories away"
            )
    with ranks.on_all_ranks(f"empty {directory}"):
        if hosts.is_first_here:
            for each in tried:
                is_old = newest is not None and each.age <= newest.age
                if is_wanted and is_old and each in disk.held:
                    own.drop(disk.held[each])
            if place := own.set_aside():
                logger.warning(
                    "local checkpoints that this run does not go on from are in %s", place
                )
    return run, starts


def _put_together(
    manifest: Manifest, parts: list[set[str]], disk: Disk, shared: Directory, keep: Keep
) -> None:
    """The first rank that has a file brings it to the shared directory; rank 0 commits all."""
    givers, task = _givers(parts), f"bring a checkpoint to {shared.path}"
    with _draft(shared, manifest.size, makes=ranks.rank() == 0) as temporary:
        with ranks.on_all_ranks(task):
            for name in manifest.files:
                if givers[name] == ranks.rank():
                    disk.give(manifest, name, temporary / name)
            synchronise(temporary)
        with ranks.on_all_ranks(task):
            if ranks.rank() == 0:
                saved = shared.commit(temporary, replace(manifest, number=0, keep=repr(keep)))
                logger.info("brought %s from the disks of the hosts", saved.path)


@contextmanager
def _draft(home: Directory, size: int, *, makes: bool) -> Generator[Path, None, None]:
    """A hidden folder whose name all ranks know; some of them make it, and remove what is left."""
    temporary = home.path / str(ranks.from_first(beside(home.path / "iteration-0", "tmp").name))
    try:
        with ranks.on_all_ranks(f"make room in {home.path}"):
            if makes:
                home.need_space(size)
                temporary.mkdir()
        yield temporary
    finally:
        if makes:
            remove_path(temporary)


def _givers(parts: list[set[str]]) -> dict[str, int]:
    """The first rank that has each file."""
    return {name: rank for rank, names in reversed([*enumerate(parts)]) for name in names}


class Brought(NamedTuple):
    """Where a run begins."""

    run: str
    """The name of the run; empty for a new one."""
    starts: int
    """How often it was started before."""
    number: int
    """The largest number of a checkpoint: what `keep` drops goes by the numbers."""
    saved: Saved | None
    """The checkpoint to resume from, whole on this host; None if there is none to resume from.
    Ranks of one host have the same."""


def bring_to_each_host(
    own: Directory, hosts: Hosts, store: ObjectStore | None, *, is_wanted: bool
) -> Brought:
    """Give each host the newest checkpoint of which every file is on some host or in the store.

    All ranks call this. Afterwards the directory of each host has that checkpoint; older ones stay
    as they are, and later ones, of which files are lost, are moved aside.

    Args:
        own: The directory of this host, which this run has locked.
        hosts: The hosts.
        store: Where the run is copied to.
        is_wanted: False to bring none, since the run begins anew: all are moved aside.

    Raises:
        OSError: A disk is full, a host is lost meanwhile, or the store cannot be read.
        ValueError: The hosts hold checkpoints of several runs, or none of one is whole.
    """
    directory, search = own.path, Search(own.path, hosts, store)
    disk = search.disk
    if search.in_store:  # it has been written without a name if all hosts shared a directory
        run = search.in_store[0].run or str(ranks.from_first(store.run() if store else ""))
    else:
        run = search.run(None, directory, is_wanted=is_wanted)
    tried = [each for each in search.found if each.run in (run, "")]
    starts = max((each.start for each in tried), default=0)
    number = max((each.number for each in search.found), default=0)
    if not is_wanted:
        _tidy(own, hosts, disk)
        return Brought(run, starts, number, None)
    if len(tried) < len(search.found):
        logger.warning("checkpoints of another run are passed over in %s", directory)
    for each in tried:
        found = search.whole(each)
        if found and (saved := _give_all(*found, disk, own, hosts, store)):
            _tidy(own, hosts, disk, each, saved.path)
            return Brought(run, starts, number, saved)
    if tried:
        raise ValueError(
            f"no checkpoint in {directory} is whole on the hosts of this start together"
            f"{', nor in the store' * bool(search.in_store)}, and a run does not silently start "
            "anew. Start it on the hosts that it ran on; or, to start a new one, move these away"
        )
    return Brought(run, starts, number, None)


def _give_all(
    manifest: Manifest,
    parts: list[set[str]],
    disk: Disk,
    own: Directory,
    hosts: Hosts,
    store: ObjectStore | None,
) -> Saved | None:
    """Make a checkpoint whole on each host; None, with a warning, if the store's is broken."""
    task = f"bring a checkpoint to {own.path}"
    with ranks.on_all_ranks(f"read {own.path}"):
        there = os.listdir(own.path)
    taken = {name for names in ranks.gathered(there) for name in names}
    place = own.unused(manifest.iteration, taken)  # all ranks read the same one
    here, givers, broken = parts[ranks.rank()], _givers(parts), ""
    lacking = manifest.files.keys() - here if hosts.is_first_here else set[str]()
    size = sum(manifest.files[name].size for name in lacking)
    with _draft(own, size, makes=hosts.is_first_here) as temporary:
        with ranks.on_all_ranks(task):
            hosts.offer(temporary, {name: disk.path(manifest, name) for name in here})
            for name in sorted(here):
                disk.give(manifest, name, temporary / name)
            for source in sorted({givers[name] for name in lacking if name in givers}):
                names = {name for name in lacking if givers.get(name) == source}
                hosts.receive(temporary, source, {name: manifest.files[name] for name in names})
            try:
                for name in sorted(lacking - givers.keys()) if store else ():
                    store.give(manifest, name, temporary / name)  # type: ignore[union-attr]
            except BrokenCheckpoint as error:
                broken = error.reason
                logger.warning(
                    "passed over, a broken checkpoint of iteration %d in the store: %s",
                    *(manifest.iteration, broken),
                )
        if ranks.any_rank(bool(broken)):
            return None
        with ranks.on_all_ranks(task):
            if hosts.is_first_here:
                synchronise(temporary)
                own.commit(temporary, manifest, place=place)
                logger.info("brought %s to each host", place)
    return Saved(place, manifest)


def _tidy(
    own: Directory,
    hosts: Hosts,
    disk: Disk,
    newest: CheckpointId | None = None,
    whole: Path | None = None,
) -> None:
    """Move checkpoints away that this run does not go on from; drop parts of what is whole now."""
    with ranks.on_all_ranks(f"tidy {own.path}"):
        if not hosts.is_first_here:
            return
        kept = [whole] if whole else []
        for each, saved in disk.held.items() if newest else ():
            if each == newest:
                own.drop(saved)
            elif newest and each.run in (newest.run, "") and each.is_before(newest):
                kept.append(saved.path)
        if place := own.set_aside(kept):
            logger.warning("checkpoints that this run does not go on from are in %s", place)
        if whole:
            own.note_latest(whole)


def refuse_other_run(directory: Path, hosts: Hosts) -> None:
    """Refuse a new run where a host has checkpoints of an earlier one.

    Raises:
        FileExistsError: A host has checkpoints.
    """
    if ranks.any_rank(hosts.is_first_here and bool(Checkpoints(directory))):
        raise FileExistsError(
            f"{str(directory)!r}: a host holds checkpoints of an earlier run there; pass "
            "resume=True to go on with it, start_over=True to move them aside, or choose another "
            "directory for a new run"
        )


def _newest_good(shared: Path, verify: Callable[[Saved], None]) -> CheckpointId | None:
    """The newest good checkpoint of the shared directory."""
    with suppress(ValueError):  # all are broken: a local one may be whole
        return _newest(filter(None, [Checkpoints(shared, verify).latest()]))
    return None


def _newest(found: Iterable[Saved]) -> CheckpointId | None:
    return next((CheckpointId.of(each.manifest) for each in reversed([*found])), None)
