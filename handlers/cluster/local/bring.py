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
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ....engine import ranks
from ...checkpoint.directory import Checkpoints, Directory, Saved
from ...checkpoint.format import BrokenCheckpoint, Keep, Manifest
from ...files import beside, named_again, remove_path, synchronise
from .hosts import Hosts

if TYPE_CHECKING:
    from ..mirror import StoreProcess

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

    def __init__(self, own: Directory, hosts: Hosts, store: StoreProcess | None = None) -> None:
        """Look at what there is.

        Args:
            own: The directory of this host, which this run has locked.
            hosts: The hosts.
            store: Where the run is copied to.
        """
        self._own, self._hosts, self._store = own, hosts, store
        with ranks.on_all_ranks(f"read {own.path}"):
            self._disk = Disk(own.path, hosts)
            self._holders: list[Disk | StoreProcess] = [self._disk]
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

    def of_runs(self, *runs: str, is_wanted: bool) -> list[CheckpointId]:
        """The checkpoints of these runs, the newest first."""
        own = [each for each in self.found if each.run in runs]
        if is_wanted and len(own) < len(self.found):
            logger.warning("checkpoints of another run are passed over in %s", self._own.path)
        return own

    def run(self, newest: CheckpointId | None, *, is_wanted: bool) -> str:
        """The run that goes on: that of the shared directory, or the only one that is held."""
        if newest is not None and newest.run:
            return newest.run
        runs = sorted({each.run for each in self.found} - {""})
        if len(runs) > 1 and is_wanted:
            raise ValueError(
                f"the hosts hold checkpoints of {len(runs)} runs in {self._own.path}, and nothing "
                "tells which of them goes on; move those of the others away"
            )
        return runs[0] if runs else ""

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

    def put_together(self, wanted: CheckpointId, shared: Directory, keep: Keep) -> bool:
        """Bring a checkpoint to a shared directory; False, with a warning, if it is not whole.

        The first rank that has a file brings it; rank 0 commits all.
        """
        if (found := self.whole(wanted)) is None:
            return False
        manifest, givers = found[0], _givers(found[1])
        task = f"bring a checkpoint to {shared.path}"
        with _draft(shared, manifest.size, makes=ranks.rank() == 0) as temporary:
            with ranks.on_all_ranks(task):
                for name in manifest.files:
                    if givers[name] == ranks.rank():
                        self._disk.give(manifest, name, temporary / name)
                synchronise(temporary)
            with ranks.on_all_ranks(task):
                if ranks.rank() == 0:
                    saved = shared.commit(temporary, replace(manifest, number=0, keep=repr(keep)))
                    logger.info("brought %s from the disks of the hosts", saved.path)
        return True

    def give_all(self, wanted: CheckpointId) -> Saved | None:
        """Make a checkpoint whole on each host; None, with a warning, if that is not possible."""
        if (found := self.whole(wanted)) is None:
            return None
        (manifest, parts), own, hosts = found, self._own, self._hosts
        with ranks.on_all_ranks(f"read {own.path}"):
            there = os.listdir(own.path)
        taken = {name for names in ranks.gathered(there) for name in names}
        place = own.unused(manifest.iteration, taken)  # all ranks read the same one
        here, givers, broken = parts[ranks.rank()], _givers(parts), ""
        lacking = manifest.files.keys() - here if hosts.is_first_here else set[str]()
        size = sum(manifest.files[name].size for name in lacking)
        task = f"bring a checkpoint to {own.path}"
        with _draft(own, size, makes=hosts.is_first_here) as temporary:
            with ranks.on_all_ranks(task):
                hosts.offer(temporary, {name: self._disk.path(manifest, name) for name in here})
                for name in sorted(here):
                    self._disk.give(manifest, name, temporary / name)
                for source in sorted({givers[name] for name in lacking if name in givers}):
                    names = {name for name in lacking if givers.get(name) == source}
                    hosts.receive(temporary, source, {name: manifest.files[name] for name in names})
                try:
                    for name in sorted(lacking - givers.keys()) if self._store else ():
                        self._store.give(manifest, name, temporary / name)  # type: ignore[union-attr]
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

    def empty(self, brought: CheckpointId | None, run: str) -> None:
        """Drop what a shared directory has too; move the other local checkpoints aside."""
        with ranks.on_all_ranks(f"empty {self._own.path}"):
            for each, saved in self._disk.held.items() if brought else ():
                if brought and each.run == run and each.age <= brought.age:
                    self._own.drop(saved)
            self._set_aside("local checkpoints", ())

    def tidy(self, newest: CheckpointId | None = None, whole: Path | None = None) -> None:
        """Move checkpoints away that this run does not go on from; drop parts of what is whole."""
        with ranks.on_all_ranks(f"tidy {self._own.path}"):
            kept = [whole] if whole else []
            for each, saved in self._disk.held.items() if newest else ():
                if each == newest:
                    self._own.drop(saved)
                elif newest and each.run in (newest.run, "") and each.is_before(newest):
                    kept.append(saved.path)
            self._set_aside("checkpoints", kept)
            if whole and self._hosts.is_first_here:
                self._own.write_latest(whole)

    def _set_aside(self, what: str, but: Collection[Path]) -> None:
        if self._hosts.is_first_here and (place := self._own.set_aside(but)):
            logger.warning("%s that this run does not go on from are in %s", what, place)


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
    search = Search(own, hosts)
    # If all checkpoints there are broken, a local one may be whole.
    there = shared.newest_good() if search.found else next(reversed(Checkpoints(shared.path)), None)
    newest = CheckpointId.of(there.manifest) if there else None
    run = search.run(newest, is_wanted=is_wanted)
    tried = search.of_runs(run, is_wanted=is_wanted)
    starts = max((each.start for each in [*tried, *filter(None, [newest])]), default=0)
    for each in tried if is_wanted else ():
        if newest is not None and each.age <= newest.age:
            break
        if search.put_together(each, shared, keep):
            newest = each
            break
    if is_wanted and tried and newest is None:
        raise ValueError(
            f"no checkpoint in {own.path} is whole on the hosts of this start together, "
            f"{shared.path} holds none, and a run does not silently start anew. Start it on the "
            "hosts that it ran on; or, to start a new run, move these directories away"
        )
    search.empty(newest if is_wanted else None, run)
    return run, starts


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
    own: Directory, hosts: Hosts, store: StoreProcess | None, *, is_wanted: bool
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
    search = Search(own, hosts, store)
    if search.in_store:  # it has been written without a name if all hosts shared a directory
        run = search.in_store[0].run or str(ranks.from_first(store.run() if store else ""))
    else:
        run = search.run(None, is_wanted=is_wanted)
    tried, saved = search.of_runs(run, "", is_wanted=is_wanted), None
    starts = max((each.start for each in tried), default=0)
    number = max((each.number for each in search.found), default=0)
    for each in tried if is_wanted else ():
        if (saved := search.give_all(each)) is not None:
            search.tidy(each, saved.path)
            break
    if is_wanted and tried and saved is None:
        raise ValueError(
            f"no checkpoint in {own.path} is whole on the hosts of this start together"
            f"{', nor in the store' * bool(search.in_store)}, and a run does not silently start "
            "anew. Start it on the hosts that it ran on; or, to start a new one, move these away"
        )
    if not is_wanted:
        search.tidy()
    return Brought(run, starts, number, saved)


def refuse_other_run(directory: Path, hosts: Hosts) -> None:
    """Refuse a new run where a host has checkpoints of an earlier one."""
    if ranks.any_rank(hosts.is_first_here and bool(Checkpoints(directory))):
        raise FileExistsError(
            f"{str(directory)!r}: a host holds checkpoints of an earlier run there; pass "
            "resume=True to go on with it, start_over=True to move them aside, or choose another "
            "directory for a new run"
        )
