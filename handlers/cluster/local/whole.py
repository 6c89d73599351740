"""The start of a run: the newest checkpoint of which every file is on some host."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import NamedTuple

from ....engine import ranks
from ...checkpoint.directory import (
    Checkpoints,
    Saved,
    Verify,
    chosen,
    commit,
    drop,
    has_checksums,
    need_space,
    scan,
    set_aside,
)
from ...checkpoint.format import Keep, Manifest
from ...files import beside, remove_path, synchronise
from .hosts import Hosts

logger: logging.Logger = logging.getLogger("camshaft")


class Held(NamedTuple):
    """A checkpoint of which hosts hold parts; the same one has the same digest on all of them."""

    start: int
    iteration: int
    number: int
    digest: str
    run: str

    @classmethod
    def of(cls, manifest: Manifest) -> Held:
        """What tells a checkpoint from others, and which one is later."""
        digest = hashlib.sha256(manifest.to_json().encode()).hexdigest()
        return cls(manifest.start, manifest.iteration, manifest.number, digest, manifest.run)


def bring_newest(
    shared: Path, directory: Path, hosts: Hosts, keep: Keep, *, is_wanted: bool
) -> tuple[str, int]:
    """Put the newest checkpoint that is whole somewhere into the shared directory.

    All ranks call this. Afterwards the local directories are empty: what the shared one has, too,
    is dropped, and other checkpoints are moved aside.

    Args:
        shared: The directory that all hosts share, which this run has locked.
        directory: The local directory of this host, which this run has locked.
        hosts: The hosts.
        keep: The claims in the shared directory.
        is_wanted: False to bring none, since the run begins anew or from another checkpoint.

    Returns:
        The name of the run, which is empty for a new one, and the count of its starts so far.

    Raises:
        ValueError: The hosts hold checkpoints of several runs, or none of one is whole, and the
            shared directory is empty.
    """
    with ranks.on_all_ranks(f"read {directory}"):
        own = held_in(directory) if hosts.is_first_here else {}
    everywhere = sorted({each for found in ranks.gathered([*own]) for each in found}, reverse=True)
    reached = chosen(partial(_newest_shared, shared)) if everywhere else _latest(scan(shared)[0])
    run = run_of(everywhere, reached, directory, is_wanted)
    tried = [each for each in everywhere if each.run == run]
    starts = max((each.start for each in [*tried, *([reached] if reached else [])]), default=0)
    if is_wanted:
        if len(tried) < len(everywhere):
            logger.warning("checkpoints of another run are passed over in %s", directory)
        reached = _bring(tried, own, shared, reached, keep) or reached
        if tried and reached is None:
            raise ValueError(
                f"no checkpoint in {directory} is whole on the hosts of this start together, "
                f"{shared} holds none, and a run does not silently start anew. Start it on the "
                "hosts that it ran on; or, to start a new run, move these directories away"
            )
    with ranks.on_all_ranks(f"empty {directory}"):
        if hosts.is_first_here:
            reached = reached if is_wanted else None
            _empty(directory, own, [e for e in tried if reached and e[:2] <= reached[:2]])
    return run, starts


def _empty(directory: Path, own: Mapping[Held, Saved], old: Iterable[Held]) -> None:
    """Drop what is no longer needed, and move the rest aside."""
    for each in old:
        if each in own:
            drop(own[each])
    if place := set_aside(directory):
        logger.warning("local checkpoints that this run does not go on from are in %s", place)


def _bring(
    tried: Iterable[Held],
    own: Mapping[Held, Saved],
    shared: Path,
    newest: Held | None,
    keep: Keep,
) -> Held | None:
    """Bring the first that is whole; None if none is, or the shared directory has a later one."""
    for held in tried:
        if newest is not None and held[:2] <= newest[:2]:
            return None
        here = own.get(held)
        holders = ranks.gathered(sorted(good_files(here)) if here else [])
        manifests = ranks.gathered(here.manifest.to_json() if here else None)
        manifest = Manifest.of_json(next(filter(None, manifests)))
        by = {name: n for n, names in reversed([*enumerate(holders)]) for name in names}
        missing = [name for name in manifest.files if name not in by]
        if not missing:
            mine = [name for name in manifest.files if by[name] == ranks.rank()]
            _copy(here, mine, shared, replace(manifest, number=0, keep=repr(keep)))
            return held
        warn_of_part(held, manifest, missing)
    return None


def _copy(own: Saved | None, names: list[str], shared: Path, manifest: Manifest) -> None:
    """Copy this rank's share of the files into the shared directory; rank 0 commits it."""
    place = shared / f"iteration-{manifest.iteration:010d}"
    temporary = shared / str(ranks.from_first(beside(place, "tmp").name))
    try:
        with ranks.on_all_ranks(f"make room in {shared}"):
            if ranks.rank() == 0:
                need_space(shared, manifest.size)
                temporary.mkdir()
        with ranks.on_all_ranks(f"bring a checkpoint to {shared}"):
            for name in names if own is not None else ():
                copyfile(own.path / name, temporary / name)  # type: ignore[union-attr]
                synchronise(temporary / name)
            synchronise(temporary)
        with ranks.on_all_ranks(f"bring a checkpoint to {shared}"):
            if ranks.rank() == 0:
                saved = commit(shared, temporary, manifest.files, manifest)
                logger.info("brought %s from the disks of the hosts", saved.path)
    except BaseException:
        if ranks.rank() == 0:
            remove_path(temporary)
        raise


def refuse_other_run(directory: Path, hosts: Hosts) -> None:
    """Refuse a new run where a host has checkpoints of an earlier one.

    Raises:
        FileExistsError: A host has checkpoints.
    """
    if ranks.any_rank(hosts.is_first_here and bool(scan(directory)[0])):
        raise FileExistsError(
            f"{str(directory)!r}: a host holds checkpoints of an earlier run there; pass "
            "resume=True to go on with it, start_over=True to move them aside, or choose another "
            "directory for a new run"
        )


def held_in(directory: Path) -> dict[Held, Saved]:
    """The checkpoints of which this host holds a part."""
    return {Held.of(each.manifest): each for each in scan(directory)[0]}


def warn_of_part(held: Held, manifest: Manifest, missing: list[str]) -> None:
    """Warn of a checkpoint that no start can put together; rank 0 does."""
    if ranks.rank() == 0:
        logger.warning(
            "passed over, since no host of this start has all of it: the checkpoint of "
            "iteration %d: %d of %d files are missing or damaged, such as %s",
            *(held.iteration, len(missing), len(manifest.files), missing[0]),
        )


def good_files(saved: Saved) -> set[str]:
    """The files of a checkpoint that are here, with the right checksums."""
    found = set[str]()
    for name, expected in saved.manifest.files.items():
        with suppress(OSError, ValueError):
            if has_checksums(saved.path / name, expected):
                found.add(name)
    return found


def _newest_shared(shared: Path, verify: Verify) -> Held | None:
    """The newest good checkpoint of the shared directory."""
    with suppress(ValueError):  # all are broken: a local one may be whole
        return _latest(filter(None, [Checkpoints(shared, verify).latest()]))
    return None


def _latest(found: Iterable[Saved]) -> Held | None:
    return next((Held.of(each.manifest) for each in reversed([*found])), None)


def run_of(everywhere: list[Held], newest: Held | None, directory: Path, is_wanted: bool) -> str:
    """The run that goes on: that of the shared directory, or the only one of the disks."""
    if newest is not None and newest.run:
        return newest.run
    runs = sorted({each.run for each in everywhere} - {""})
    if len(runs) > 1 and is_wanted:
        raise ValueError(
            f"the hosts hold checkpoints of {len(runs)} runs in {directory}, and nothing tells "
            "which of them goes on; move those of the others away"
        )
    return runs[0] if runs else ""
