"""`camshaft prune`: drops the checkpoints that no claim keeps, or strips them to weights."""

from __future__ import annotations

import logging
from collections import ChainMap
from contextlib import nullcontext
from pathlib import Path

from ...common import aligned, readable_size, show
from ...files import locked
from ..directory import (
    Findings,
    Saved,
    drop,
    files_on_disk,
    is_checkpoint,
    look,
    module_files,
    verify_files,
)
from ..directory import strip as strip_to_weights
from ..format import BrokenCheckpoint, Keep

logger = logging.getLogger("camshaft")


def prune(path: Path, keep: Keep, dry_run: bool, strip: bool = False) -> int:
    """Drop the checkpoints that no claim keeps, except the newest good one and broken ones.

    With `strip`, they are not dropped, but stripped to the weights of their modules.

    The checkpoints to keep are read in full first, so a checkpoint is never dropped in favour of a
    broken one.

    Raises:
        BlockingIOError: A run is writing to the directory.
        ValueError: All checkpoints are broken, none has the metric of a claim, or the path is no
            directory of checkpoints.
    """
    if is_checkpoint(path):
        raise ValueError(f"{path} is a checkpoint; name the directory it lies in")
    look(path, thoroughly=False)  # raises before the lock makes a file
    with nullcontext() if dry_run else locked(path):
        found = look(path, thoroughly=False)
        broken = {each.path.name: each.problem for each in found if each.problem is not None}
        good = [each.saved for each in found if each.saved and each.problem is None]
        _check_metrics(path, good, keep)
        claimed = _claimed_and_whole(good, keep, broken)
        if not claimed:
            raise ValueError(f"no checkpoint in {path} is good, so none is dropped")
        dropped = [saved for saved in good if saved.manifest.number not in claimed]
        sizes = {saved.path: _freed(saved, strip) for saved in dropped}
        dropped = [saved for saved in dropped if sizes[saved.path]]
        files = {each.path: files_on_disk([each]) for each in _readable(found)}
        if not dry_run:
            dropped = [saved for saved in dropped if (_strip if strip else drop)(saved)]
    done = "stripped to weights" if strip else "dropped"
    gone = f"would be {done}" if dry_run else done
    rows = [(name, f"broken and left alone: {problem}") for name, problem in broken.items()]
    for saved in good:
        claims = claimed.get(saved.manifest.number)
        if claims is not None:
            rows.append((saved.path.name, _kept(claims)))
        else:
            rows.append((saved.path.name, gone if saved in dropped else "stays"))
    size = sum(sizes[saved.path] for saved in dropped)
    if not strip:  # a file that another checkpoint shares stays
        lost = ChainMap(*(files.pop(saved.path) for saved in dropped))
        size = sum(lost[each] for each in lost.keys() - ChainMap(*files.values()).keys())
    show([*aligned(rows), *found.notes, f"{len(dropped)} {gone}, {readable_size(size)}"])
    return 0


def _readable(found: Findings) -> list[Saved]:
    return [each.saved for each in found if each.saved]


def _freed(saved: Saved, strip: bool) -> int:
    """The bytes that dropping or stripping a checkpoint frees; 0 if there is nothing to strip."""
    if not strip:
        return saved.manifest.size
    try:
        kept = module_files(saved)
    except BrokenCheckpoint:
        return 0
    return saved.manifest.size - sum(kept.values()) if kept else 0


def _strip(saved: Saved) -> bool:
    try:
        strip_to_weights(saved)
    except (OSError, BrokenCheckpoint) as error:
        logger.warning("the checkpoint %s stays as it is: %s", saved.path, error)
        return False
    return True


def _kept(claims: list[str]) -> str:
    return f"kept by {', '.join(claims)}" if claims else "kept, being the newest good one"


def _check_metrics(path: Path, good: list[Saved], keep: Keep) -> None:
    """Refuse a misspelt metric: it would claim nothing, and all would be dropped."""
    known = {name for saved in good for name in saved.manifest.metrics}
    for claim in keep.bests:
        if good and claim.metric not in known:
            raise ValueError(
                f"no checkpoint in {path} has the metric {claim.metric!r}; they have: "
                f"{', '.join(map(repr, sorted(known))) or 'none'}"
            )


def _claimed_and_whole(
    good: list[Saved], keep: Keep, broken: dict[str, str]
) -> dict[int, list[str]]:
    """The claims by checkpoint number; moves those that prove broken from `good` to `broken`."""
    while True:
        claimed = keep.kept(saved.manifest for saved in good)
        for saved in good:
            if saved.manifest.number in claimed:
                try:
                    verify_files(saved)
                except BrokenCheckpoint as error:
                    good.remove(saved)
                    broken[saved.path.name] = error.reason
                    break
        else:
            return claimed
