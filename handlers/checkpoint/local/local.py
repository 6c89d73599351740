"""Where and when a run is saved to the disk of each host, and what writes it there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ....engine import EventEnum, Events, State, Trigger, ranks
from ..directory import Saved, commit
from ..format import Checksums, Keep, Manifest, latest
from ..save import OnFailure, Recorder, check_arguments
from .hosts import Hosts


@dataclass(frozen=True, eq=False)
class Local:
    """Save the run to a disk of each host too: often and cheap, for a start after a failure.

    Each host writes the files of its own ranks, and sends a copy to the next host, beside the
    training. A save counts when all hosts have all of it, so one lost host loses nothing. A start
    with `Checkpoint(..., resume=True)` takes the newest checkpoint of which each file is on some
    host, unless the shared directory has a later one. It puts the files together in the shared
    directory, which then has an ordinary checkpoint: any number of ranks can resume from it.

    The last two checkpoints are kept, until the run is started again.

    Args:
        directory: A directory on a disk of each host. The ranks that see the same one are a host.
        when: When to save there. `state.save("why")` saves to the shared directory alone.
        copies: How many other hosts get a copy: 1, or 0 for none.

    Raises:
        TypeError: The directory is no path.
        ValueError: `copies` is another number.

    >>> Local("/nvme/run", copies=3)
    Traceback (most recent call last):
    ...
    ValueError: Local(copies=3): needs 1, for a copy on the next host, or 0
    """

    directory: str | Path
    _: KW_ONLY
    when: EventEnum | Trigger = Events.ITERATION_COMPLETED(every=100)
    copies: Literal[0, 1] = 1

    def __post_init__(self) -> None:
        if self.copies not in (0, 1):
            raise ValueError(
                f"Local(copies={self.copies!r}): needs 1, for a copy on the next host, or 0"
            )
        check_arguments(self)

    @property
    def keep(self) -> Keep:
        """Two: while one is written, the one before is whole on all hosts."""
        return latest(2)

    @property
    def retries(self) -> int:
        """How often a write that failed is tried again: never, since the next save comes soon."""
        return 0

    @property
    def on_failure(self) -> OnFailure:
        """A save that fails is left out, since the shared directory has the others."""
        return "warn"

    def ask(self, state: State[Any, Any]) -> None:
        """Ask for a save at the next commit point."""
        state.save(repr(Trigger.of(self.when)), by=self)


class LocalRecorder(Recorder):
    """Writes the checkpoints of all hosts: each commits its own, with the manifest of rank 0."""

    _team: Hosts

    def __init__(self, local: Local, *, background: bool) -> None:
        """Write nothing yet."""
        super().__init__(local, background=background)
        self._takes_all = False

    def open(self) -> None:
        """Find the hosts; the first rank of each locks its directory."""
        if self._is_open:
            return
        self._team.meet()
        with ranks.on_all_ranks(f"write to {self.directory}"):
            if self._team.is_first_here:
                self._lock.acquire()
            self._is_open = True

    @property
    def hosts(self) -> Hosts:
        """The hosts of the ranks."""
        return self._team

    def _make_team(self, is_alone: bool) -> Hosts:
        assert isinstance(self.handler, Local)
        return Hosts(self.directory, copies=self.handler.copies)

    def _commit(self, temporary: Path, files: Mapping[str, Checksums], manifest: Manifest) -> Saved:
        team = self._team
        if team.rank > 0:
            manifest = team.hear(temporary)
            files = manifest.files
        task = partial(commit, self.directory, temporary, files, manifest, self._newest)
        saved = self._writer.several_times(partial(task, is_whole=len(team.firsts) == 1))
        if team.rank == 0:
            team.tell(temporary, saved.manifest)
        self._newest = saved
        return saved
