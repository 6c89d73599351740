"""Which checkpoint a run goes on from."""

from __future__ import annotations

import logging
from pathlib import Path

from .broken import BrokenCheckpoint
from .retention import Best
from .store import Saved, look_at, scan, verify

logger = logging.getLogger("camshaft")


def choose(directory: Path, by: Best | None = None) -> tuple[Saved | None, list[str]]:
    """The newest good checkpoint in a directory, or the best one; and the names of broken ones.

    A broken one is passed over, with a warning. None is chosen where there is none at all.

    Raises:
        ValueError: There are checkpoints, but no good one, or none with a score to choose `by`.
    """
    found, broken = scan(directory)
    order = found[::-1]
    if by is not None:
        numbered = {saved.manifest.number: saved for saved in found}
        order = [numbered[each.number] for each in by.ranking([s.manifest for s in found])]
    for saved in order:
        try:
            verify(saved)
        except BrokenCheckpoint as error:
            broken[saved.path.name] = error.reason
            continue
        for name, reason in broken.items():
            logger.warning(
                "the checkpoint %s is broken and passed over, the run goes on from %s: %s",
                *(directory / name, saved.path.name, reason),
            )
        return saved, sorted(broken)
    if broken:
        listed = "".join(f"\n  {name}: {reason}" for name, reason in broken.items())
        raise ValueError(
            f"no checkpoint in {directory} is good, and a run does not silently start anew; to "
            f"start it, move them away or choose another directory:{listed}"
        )
    if found and by is not None:
        names = sorted({name for saved in found for name in saved.manifest.metrics})
        raise ValueError(
            f"resume='best': no checkpoint in {directory} has the metric {by.metric!r}; they have: "
            f"{', '.join(map(repr, names)) or 'none'}"
        )
    return None, []


def named(path: Path) -> Saved:
    """The checkpoint at that path, verified; nothing else will do.

    Raises:
        FileNotFoundError: There is nothing.
        BrokenCheckpoint: It is damaged, or no checkpoint.
        ValueError: It is a whole directory of checkpoints.
    """
    if inside := scan(path)[0]:
        raise ValueError(
            f"resume={str(path)!r} is a directory of checkpoints; name one of them, such as "
            f"{str(inside[-1].path)!r}"
        )
    if not path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"resume={str(path)!r} is no whole checkpoint: nothing is there")
    saved = look_at(path)
    verify(saved)
    return saved
