"""The start of a run whose hosts share no directory: each host gets the newest checkpoint whole.

Its files come from the disks of the hosts; a file that no host has comes from the object store. So
a lost host is replaced by the others, and hosts with empty disks start from the store.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol
from zlib import crc32

from ....engine import ranks
from ...checkpoint.directory import (
    Saved,
    commit,
    drop,
    need_space,
    note_latest,
    scan,
    set_aside,
    unused_path,
)
from ...checkpoint.format import BrokenCheckpoint, Manifest
from ...files import beside, named_again, remove_path, synchronise
from .hosts import Hosts, receive_files, send_files
from .whole import Held, good_files, held_in, run_of, warn_of_part

logger: logging.Logger = logging.getLogger("camshaft")


class ObjectStore(Protocol):
    """What a `Mirror` does for hosts that share no directory; each first rank of a host has one."""

    def manifests(self) -> list[Manifest]:
        """On rank 0: those of the checkpoints in the store, as the run found it."""
        ...

    def has(self, manifest: Manifest) -> set[str]:
        """On rank 0: the files of a checkpoint in the store."""
        ...

    def run(self) -> str:
        """On rank 0: the name of the run in the store."""
        ...

    def fetch_logs(self) -> None:
        """On rank 0: download logs that the directory lacks, or has less of."""
        ...

    def give(self, manifest: Manifest, name: str, path: Path) -> None:
        """Download a file of a checkpoint, and compare its checksum.

        Raises:
            BrokenCheckpoint: The store does not have what the manifest says.
            OSError: The store cannot be read.
        """
        ...

    def is_free(self) -> bool:
        """True if this host has copied all that it was given."""
        ...

    def upload(self, saved: Saved) -> None:
        """Copy this host's files of a checkpoint, which stay there until then."""
        ...


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
    directory: Path, hosts: Hosts, store: ObjectStore | None, *, is_wanted: bool
) -> Brought:
    """Give each host the newest checkpoint of which every file is on some host or in the store.

    All ranks call this. Afterwards the directory of each host has that checkpoint; older ones stay
    as they are, and later ones, of which files are lost, are moved aside.

    Args:
        directory: The directory of this host, which this run has locked.
        hosts: The hosts.
        store: Where the run is copied to.
        is_wanted: False to bring none, since the run begins anew: all are moved aside.

    Raises:
        OSError: A disk is full, a host is lost meanwhile, or the store cannot be read.
        ValueError: The hosts hold checkpoints of several runs, or none of one is whole.
    """
    with ranks.on_all_ranks(f"read {directory}"):
        own = held_in(directory) if hosts.is_first_here else {}
        manifests = store.manifests() if store is not None and ranks.rank() == 0 else []
        stored = {Held.of(each): each for each in manifests}
    everywhere = {each for found in ranks.gathered([*own, *stored]) for each in found}
    in_store = sorted(ranks.from_first([*stored]), reverse=True)
    newest_first = sorted(everywhere, reverse=True)
    if in_store:  # it has been written without a name if all hosts shared a directory
        name = store.run() if store is not None else ""
        run = in_store[0].run or str(ranks.from_first(name))
    else:
        run = run_of(newest_first, None, directory, is_wanted)
    tried = [each for each in newest_first if each.run in (run, "")]
    starts = max((each.start for each in tried), default=0)
    number = max((each.number for each in newest_first), default=0)
    if not is_wanted:
        _tidy(directory, hosts)
        return Brought(run, starts, number, None)
    if len(tried) < len(newest_first):
        logger.warning("checkpoints of another run are passed over in %s", directory)
    for held in tried:
        if saved := _bring(held, own, stored, directory, hosts, store):
            _tidy(directory, hosts, held, saved.path)
            return Brought(run, starts, number, saved)
    if tried:
        raise ValueError(
            f"no checkpoint in {directory} is whole on the hosts of this start together"
            f"{', nor in the store' * bool(in_store)}, and a run does not silently start anew. "
            "Start it on the hosts that it ran on; or, to start a new one, move these away"
        )
    return Brought(run, starts, number, None)


def _bring(
    held: Held,
    own: dict[Held, Saved],
    stored: dict[Held, Manifest],
    directory: Path,
    hosts: Hosts,
    store: ObjectStore | None,
) -> Saved | None:
    """Make a checkpoint whole on each host; None, with a warning, if that is not possible."""
    here = own.get(held)
    has = [set(names) for names in ranks.gathered(sorted(good_files(here)) if here else [])]
    texts = [here.manifest.to_json()] if here else []
    texts += [stored[held].to_json()] if held in stored else []
    manifest = Manifest.of_json(next(t for each in ranks.gathered(texts) for t in each))
    missing = sorted({*manifest.files}.difference(*has))
    in_store = store.has(manifest) if store is not None and ranks.rank() == 0 else set[str]()
    if lost := sorted({*missing} - ranks.from_first(in_store)):
        warn_of_part(held, manifest, lost)
        return None
    place = _unused_path(directory, manifest.iteration)
    temporary = directory / str(ranks.from_first(beside(place, "tmp").name))
    fetched = _dealt(missing, hosts)
    try:
        with ranks.on_all_ranks(f"make room in {directory}"):
            if hosts.is_first_here:
                lacking = {*manifest.files} - has[ranks.rank()]
                need_space(directory, sum(manifest.files[name].size for name in lacking))
                temporary.mkdir()
                for name in sorted(has[ranks.rank()]):
                    named_again(here.path / name, temporary / name)  # type: ignore[union-attr]
        if missing and not _fetch(manifest, fetched[ranks.rank()], temporary, store):
            return None
        has = [each.union(fetched[rank]) for rank, each in enumerate(has)]
        with ranks.on_all_ranks(f"bring a checkpoint to {directory}"):
            _exchange(manifest, has, temporary, hosts)
            if hosts.is_first_here:
                synchronise(temporary)
                commit(directory, temporary, manifest.files, manifest, place=place)
                logger.info("brought %s to each host", place)
    finally:
        if hosts.is_first_here:
            remove_path(temporary)
    return Saved(place, manifest)


def _unused_path(directory: Path, iteration: int) -> Path:
    """A path whose name no host has in its directory: all ranks are to read the same one."""
    with ranks.on_all_ranks(f"read {directory}"):
        own = os.listdir(directory)
    taken = {name for names in ranks.gathered(own) for name in names}
    return unused_path(directory, iteration, taken)


def _dealt(missing: list[str], hosts: Hosts) -> list[list[str]]:
    """By rank: which of the missing files it downloads; the first rank of each host does."""
    shares = {rank: missing[n :: len(hosts.firsts)] for n, rank in enumerate(hosts.firsts)}
    return [shares.get(rank, []) for rank in range(ranks.world_size())]


def _fetch(
    manifest: Manifest, names: list[str], temporary: Path, store: ObjectStore | None
) -> bool:
    """Download this host's share; False on all ranks if the store's copy is broken."""
    broken = ""
    with ranks.on_all_ranks("read the store"):
        try:
            for name in names if store is not None else ():
                store.give(manifest, name, temporary / name)  # type: ignore[union-attr]
        except BrokenCheckpoint as error:
            broken = error.reason
            logger.warning(
                "passed over, a broken checkpoint of iteration %d in the store: %s",
                *(manifest.iteration, broken),
            )
    return not ranks.any_rank(bool(broken))


def _exchange(manifest: Manifest, has: list[set[str]], temporary: Path, hosts: Hosts) -> None:
    """Each file goes from the first host that has it to those that lack it.

    Each sends in the order of ranks and receives in that order, so no two wait for each other.
    """
    sender = {name: next(r for r in hosts.firsts if name in has[r]) for name in manifest.files}
    tag = crc32(temporary.name.encode()) >> 1
    sends = {(source, to): [n for n, r in sender.items() if r == source and n not in has[to]]
             for source in hosts.firsts for to in hosts.firsts}  # fmt: skip
    own = ranks.rank()
    failures = list[Exception]()
    with ThreadPoolExecutor(1, "camshaft-copies") as pool:
        files = manifest.files
        given = [
            pool.submit(send_files, temporary, {n: files[n] for n in sends[own, to]}, to, tag)
            for to in hosts.firsts
            if sends.get((own, to))
        ]
        for source in hosts.firsts:
            if sends.get((source, own)):
                try:
                    receive_files(temporary, source, tag)
                except (OSError, ValueError) as error:
                    failures.append(error)  # the others must not wait
        for each in given:
            each.result()
    if failures:
        raise OSError(f"rank {own} could not get a whole checkpoint: {failures[0]}")


def _tidy(
    directory: Path, hosts: Hosts, held: Held | None = None, whole: Path | None = None
) -> None:
    """Move checkpoints away that this run does not go on from; drop parts of what is whole now."""
    with ranks.on_all_ranks(f"tidy {directory}"):
        if not hosts.is_first_here:
            return
        kept = [whole] if whole else []
        for each in scan(directory)[0] if held else ():
            other = Held.of(each.manifest)
            if other == held and each.path != whole:
                drop(each)
            elif held and other.run in (held.run, "") and _is_before(other, held):
                kept.append(each.path)
        if place := set_aside(directory, kept):
            logger.warning("checkpoints that this run does not go on from are in %s", place)
        if whole:
            note_latest(whole)


def _is_before(other: Held, held: Held) -> bool:
    """True if it is older by all that decides: what is to be dropped goes by the number alone."""
    return other[:3] < held[:3] and other.number < held.number
