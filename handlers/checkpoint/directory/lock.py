"""The lock of a directory of checkpoints, which holds even if somebody removes the directory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ....engine import ranks
from ...files import locked, make_directory
from .files import sweep

logger = logging.getLogger("camshaft")

PATIENCE = 30.0
"""Seconds that a restarted rank 0 waits for its predecessor, which may still be ending."""


class DirectoryLock:
    """Keeps a directory for one run, also when somebody removes the directory under the run."""

    def __init__(self, directory: Path) -> None:
        """Hold nothing yet."""
        self.directory = directory
        self._held = ExitStack()
        self._is_held: Callable[[], bool] = lambda: False

    def acquire(self) -> None:
        """Make and lock the directory, and remove what a killed run had not finished.

        On several ranks this waits for the lock: a launcher restarts all ranks when one has failed,
        and the rank 0 of before may still be ending.

        Raises:
            BlockingIOError: Another run writes there.
        """
        make_directory(self.directory)
        patience = PATIENCE if ranks.world_size() > 1 else 0.0
        self._is_held = self._held.enter_context(locked(self.directory, patience))
        sweep(self.directory)

    def renew(self) -> None:
        """Make and lock the directory anew if somebody has removed it, or moved it elsewhere.

        Raises:
            BlockingIOError: Another run has begun to write there meanwhile.
        """
        if self._is_held():
            return
        self._held.close()
        self.acquire()
        logger.warning(
            "%s, or the file LOCK in it, was removed or moved while the run wrote to it; the run "
            "goes on there, and earlier checkpoints are where they are now, if anywhere",
            self.directory,
        )

    def release(self) -> None:
        """Let other runs write there."""
        self._held.close()
