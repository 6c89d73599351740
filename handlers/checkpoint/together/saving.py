"""One save by all ranks: what the thread of each of them does, without a message to all."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ....engine import ranks
from ...files import remove
from ..directory import Saved, commit
from ..format import Checksums, Manifest

logger = logging.getLogger("camshaft")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Saving:
    """Each rank writes its files and reports to rank 0, which then names the checkpoint.

    Ranks report by letters, since a thread must not take part in collectives. At the next commit
    point all ranks learn whether the save has succeeded.
    """

    directory: Path
    temporary: Path
    """The directory that all ranks write to; its name is not that of a checkpoint."""
    rank: int
    count: int
    """How many ranks there are."""
    several_times: Callable[[Callable[[], Any]], Any]
    """Runs a task, with retries."""
    is_over: Callable[[], bool]
    """True once ranks that have not reported are no longer waited for."""

    def carry_out(self, write: Callable[[], dict[str, Checksums]]) -> None:
        """Write this rank's files, and report to rank 0 that they are on the disk, or why not.

        Raises:
            OSError: The files could not be written.
        """
        try:
            files: dict[str, Checksums] = self.several_times(write)
        except BaseException as error:
            self.tell_failure(error)
            raise
        self._tell({"files": {name: asdict(each) for name, each in files.items()}})

    def tell_failure(self, error: BaseException) -> None:
        """Report to rank 0 that this rank will write nothing."""
        self._tell({"failed": f"rank {self.rank} on {socket.gethostname()}: {error}"})

    def finish(self, manifest: Manifest, before: Saved | None) -> Saved:
        """On rank 0: wait for the others, and commit what all have written.

        Raises:
            OSError: A rank could not write, or did not report; nothing of the save is left.
        """
        try:
            files = self._files()
            task = partial(commit, self.directory, self.temporary, files, manifest, before)
            saved: Saved = self.several_times(task)
        except BaseException:
            remove(self.temporary)
            raise
        return saved

    def _files(self) -> dict[str, Checksums]:
        letters = ranks.collected(self.temporary.name, self.count, self.is_over)
        told = [json.loads(each) if each else None for each in letters]
        silent = [rank for rank, each in enumerate(told) if each is None]
        failures = [each["failed"] for each in told if each and "failed" in each]
        if silent:
            failures.append(f"rank {', '.join(map(str, silent))} did not tell that it has written")
        if failures:
            shown = "; ".join(failures[:3]) + ("; ..." if len(failures) > 3 else "")
            raise OSError(
                f"could not write the checkpoint {self.temporary}: {shown}. Nothing of it is "
                "left, and older ones are as they were"
            )
        found: dict[str, Checksums] = {}
        for each in filter(None, told):
            found |= {name: Checksums(**sums) for name, sums in each["files"].items()}
        return dict(sorted(found.items()))

    def _tell(self, said: Mapping[str, Any]) -> None:
        ranks.leave(self.temporary.name, self.rank, json.dumps(said))
