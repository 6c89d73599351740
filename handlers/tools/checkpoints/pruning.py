"""`camshaft prune`: drops the checkpoints that no claim keeps, or strips them to weights."""

from __future__ import annotations

import logging
from collections import ChainMap
from contextlib import nullcontext
from pathlib import Path

from ...checkpoint import BrokenCheckpoint, Keep, Saved
from ...checkpoint.directory import Directory, is_checkpoint, module_files, strip_to_weights
from ...common import aligned, readable_size, show, show_json
from ...files import locked
from .look import files_on_disk, look

logger: logging.Logger = logging.getLogger("camshaft")


def prune(path: Path, keep: Keep, dry_run: bool, strip: bool = False, as_json: bool = False) -> int:
    """Drop the checkpoints that no claim keeps, except the newest good one and broken ones.

    With `strip`, they are not dropped, but stripped to the weights of their modules.

    The checkpoints to keep are read in full first, so a checkpoint is never dropped in favour of a
    broken one.
    """
    if is_checkpoint(path):
        raise ValueError(f"{path} is a checkpoint; name the directory it lies in")
    look(path, thoroughly=False)  # raises before the lock makes a file
    with nullcontext() if dry_run else locked(path):
        found = look(path, thoroughly=False)
        broken = {each.path.name: each.problem for each in found if each.problem is not None}
        good = [each.saved for each in found if each.saved and each.problem is None]
        manifests = [each.manifest for each in good]
        for claim in keep.bests:  # a misspelt metric would keep none
            if good and not any(claim.metric in each.metrics for each in manifests):
                raise claim.unknown(path, manifests)
        claimed = _claimed_and_whole(good, keep, broken)
        if not claimed:
            raise ValueError(f"no checkpoint in {path} is good, so none is dropped")
        others = [saved for saved in good if saved.manifest.number not in claimed]
        sizes = {saved.path: _freed(saved, strip) for saved in others}
        dropped = [saved for saved in others if sizes[saved.path]]
        files = {each.path: files_on_disk([each.saved]) for each in found if each.saved}
        if not dry_run:
            act = _strip if strip else Directory(path).drop
            dropped = [saved for saved in dropped if act(saved)]
    done = "stripped to weights" if strip else "dropped"
    gone = f"would be {done}" if dry_run else done
    rows = [(name, f"broken and left alone: {problem}") for name, problem in broken.items()]
    for saved in good:
        fate = gone if saved in dropped else "stays"
        if (claims := claimed.get(saved.manifest.number)) is not None:
            fate = f"kept by {', '.join(claims)}" if claims else "kept, being the newest good one"
        rows.append((saved.path.name, fate))
    size = sum(sizes[saved.path] for saved in dropped)
    if not strip:  # a file that another checkpoint shares stays
        lost = ChainMap(*(files.pop(saved.path) for saved in dropped))
        size = sum(lost[each] for each in lost.keys() - ChainMap(*files.values()).keys())
    if as_json:
        fates = [{"checkpoint": name, "fate": fate} for name, fate in rows]
        show_json({"checkpoints": fates, "count": len(dropped), "freed": size, "dry_run": dry_run})
    else:
        show([*aligned(rows), *found.notes, f"{len(dropped)} {gone}, {readable_size(size)}"])
    return 0


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


def _claimed_and_whole(
    good: list[Saved], keep: Keep, broken: dict[str, str]
) -> dict[int, list[str]]:
    """The claims by checkpoint number; moves those that prove broken from `good` to `broken`."""
    while True:
        claimed = keep.kept(saved.manifest for saved in good)
        for saved in good:
            if saved.manifest.number in claimed and (problem := saved.problem()) is not None:
                good.remove(saved)
                broken[saved.path.name] = problem
                break
        else:
            return claimed
