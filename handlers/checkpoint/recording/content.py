"""The content of a save, and the check that a run could be resumed from it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping

from ....engine import ranks
from ..format import Payload, UnreadableError, needing_memory, rank_file
from ..load import SavedRun
from ..snapshot import Snapshot
from ..staging import Staging, streamed
from ..together import Taken

Content = Snapshot | Taken | Mapping[str, Payload]
"""What a handler saves: a snapshot of one rank, the part of one of several, or ready files."""
Copied = tuple[Snapshot | None, Mapping[str, Payload]]
"""A snapshot, if the content is one, and the files to write."""


def copied(content: Content, staging: Staging | None) -> Copied:
    """The files to write; with `staging` they are a copy, and the run may change.

    Raises:
        OSError: Memory has run out.
    """
    if isinstance(content, Taken):
        content = content.snapshot
    if not isinstance(content, Snapshot):
        return None, content
    with needing_memory("copy the run"):
        return content, (streamed if staging is None else staging.copy)(content)


def refuse_unreadable(snapshot: Snapshot | None) -> None:
    """Decode a snapshot as a resume does, with a few numbers of each tensor.

    Raises:
        UnreadableError: No run could be resumed from it.
    """
    if snapshot is None:
        return
    own = rank_file(ranks.rank())
    part = snapshot.others.get(f"{own}.json")
    try:
        if part is not None:
            tensors = ChainMap(dict(snapshot.tensors.get(own, {})), dict(snapshot.shared))
            SavedRun.of_part(part, tensors)
        elif snapshot.tree is not None and snapshot.tree["run"]:
            SavedRun.of(snapshot.tree, snapshot.tensors)
    except ValueError as error:
        raise UnreadableError(f"no run could be resumed from this checkpoint: {error}") from error
