"""`camshaft prune`: drops the checkpoints that no claim keeps."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from ...common import aligned, readable_size, show
from ..directory import Saved, drop, is_checkpoint, locked, look, verify_files
from ..format import BrokenCheckpoint, Keep


def prune(path: Path, keep: Keep, dry_run: bool) -> int:
    """Drop the checkpoints that no claim keeps, except the newest good one and broken ones.

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
        if not dry_run:
            dropped = [saved for saved in dropped if drop(saved)]
    gone = "would be dropped" if dry_run else "dropped"
    rows = [(name, f"broken and left alone: {problem}") for name, problem in broken.items()]
    for saved in good:
        claims = claimed.get(saved.manifest.number)
        if claims is not None:
            rows.append((saved.path.name, _kept(claims)))
        else:
            rows.append((saved.path.name, gone if saved in dropped else "stays"))
    freed = readable_size(sum(saved.manifest.size for saved in dropped))
    show([*aligned(rows), f"{len(dropped)} {gone}, {freed}"])
    return 0


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
    """The claims by number; a checkpoint that proves broken moves from `good` to `broken`."""
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
