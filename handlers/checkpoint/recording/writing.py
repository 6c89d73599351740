"""What the thread beside a run does: write one save, and drop what no claim keeps."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from ....engine import ranks
from ..directory import (
    DirectoryLock,
    Saved,
    drop_unclaimed,
    is_claimed,
    write_checkpoint,
    write_part,
)
from ..format import Checksums, Keep, Manifest, TensorInfo
from ..together import Saving
from .content import Copied, refuse_unreadable

logger = logging.getLogger("camshaft")


class Writing:
    """Writes saves to a directory, and holds its lock; only the first rank's holds the lock."""

    def __init__(self, directory: Path, keep: Keep, spared: Path | None) -> None:
        self.directory, self.keep = directory, keep
        self.spared = spared and spared.resolve()
        """A checkpoint that is never dropped."""
        self.lock = DirectoryLock(directory)
        self.newest: Saved | None = None

    def alone(
        self, made: Copied, manifest: Manifest, only_claimed: bool, broken: Collection[str]
    ) -> None:
        """Write the files, then drop what no claim keeps."""
        snapshot, files = made
        self.lock.renew()
        if only_claimed and not self.is_claimed(manifest):
            return
        refuse_unreadable(snapshot)
        self.newest = write_checkpoint(self.directory, files, manifest, self.newest)
        self._drop(self.newest, broken)

    def together(
        self,
        made: Copied,
        meant: Mapping[str, TensorInfo],
        manifest: Manifest,
        saving: Saving,
        broken: Collection[str],
    ) -> None:
        """Write this rank's files, with the pieces `meant`; rank 0 also writes the manifest."""
        write = partial(self._part, made, meant, saving)
        if saving.rank > 0:
            saving.carry_out(write)
            return
        with suppress(OSError):  # `finish` raises it, with those of other ranks
            saving.carry_out(write)
        self.newest = saving.finish(manifest, self.newest)
        self._drop(self.newest, broken)

    def is_claimed(self, manifest: Manifest) -> bool:
        """True if a claim would keep this save; always True on other ranks than the first."""
        return ranks.rank() > 0 or is_claimed(self.directory, self.keep, manifest)

    def _part(
        self, made: Copied, meant: Mapping[str, TensorInfo], saving: Saving
    ) -> dict[str, Checksums]:
        snapshot, files = made
        if saving.rank == 0:
            self.lock.renew()
        refuse_unreadable(snapshot)
        return write_part(saving.temporary, files, meant, self.newest)

    def _drop(self, saved: Saved, broken: Collection[str]) -> None:
        logger.info("saved %s (%s)", saved.path, saved.manifest.reason)
        try:
            drop_unclaimed(self.directory, self.keep, broken, self.spared)
        except OSError as error:  # the save itself has not failed
            logger.warning("older checkpoints stay in %s: %s", self.directory, error)
