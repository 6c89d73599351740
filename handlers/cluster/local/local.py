"""Where and when a run is saved to the disk of each host, and what writes it there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from ....engine import EventEnum, Events, State, Trigger, ranks
from ...checkpoint.directory import Saved, commit, note_latest
from ...checkpoint.format import Checksums, Keep, Manifest, latest
from ...checkpoint.save import OnFailure, Recorder, check_arguments
from .bring import ObjectStore, bring_to_each_host, held_in
from .hosts import Hosts

if TYPE_CHECKING:
    from ...checkpoint import Checkpoint


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

    def __init__(self, handler: Local | Checkpoint, *, background: bool) -> None:
        """Write nothing yet."""
        super().__init__(handler, background=background)
        self._takes_all = not isinstance(handler, Local)
        self.store: ObjectStore | None = None
        """Where the hosts copy checkpoints to, each its own files."""
        self._number: int | None = None
        """The number of the newest checkpoint; before the first save, the largest on any host.

        None for a `Local`.
        """
        self.brought: Saved | None = None
        """The checkpoint that the run resumes from, whole on each host."""

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
    def keep(self) -> Keep:
        """At least two: while one appears on the hosts one by one, all have the one before."""
        return self.handler.keep | latest(2)

    def begin(self, *, is_wanted: bool, is_anew: bool) -> None:
        """Bring the newest checkpoint to each host; name the run."""
        run, starts, self._number, self.brought = bring_to_each_host(
            self.directory, self._team, self.store, is_wanted=is_wanted
        )
        self._name("" if is_anew else run, starts)

    def carry_on(self) -> None:
        """Go on with a state that is at hand, beside the checkpoints that are there."""
        with ranks.on_all_ranks(f"read {self.directory}"):
            own = held_in(self.directory) if self._team.is_first_here else {}
        found = [each for some in ranks.gathered([*own]) for each in some]
        self._number = max((each.number for each in found), default=0)
        newest = max(found, default=None)
        self._name(newest.run if newest else "", newest.start if newest else 0)

    def _name(self, run: str, starts: int) -> None:
        """Note which run it is, and which start of it."""
        self.lineage: tuple[str, int] = (run or str(ranks.from_first(uuid4().hex)), starts + 1)

    def goes_on(self) -> Path | None:
        """The checkpoint that the run resumes from; the hosts copy it to the store."""
        if self.brought is None:
            return None
        with ranks.on_all_ranks(f"go on from {self.brought.path}"):
            if self._team.is_first_here:
                self.go_on_from(self.brought.path)
                if self.store is not None:
                    self.store.upload(self.brought)
        return self.brought.path

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, let it be copied, and release the directory."""
        try:
            super().close(state)
        finally:
            self._team.close()
            is_copied = state.error is None and self._team.is_first_here
            if is_copied and self.store is not None and self._newest is not None:
                self.store.upload(self._newest)

    @property
    def hosts(self) -> Hosts:
        """The hosts of the ranks."""
        return self._team

    def _make_team(self, is_alone: bool) -> Hosts:
        copies = self.handler.copies if isinstance(self.handler, Local) else 1
        return Hosts(self.directory, copies=copies)

    def _commit(self, temporary: Path, files: Mapping[str, Checksums], manifest: Manifest) -> Saved:
        team, store = self._team, self.store
        is_copied = store is not None and team.all_say(temporary, store.is_free())
        if team.rank > 0:
            manifest, is_copied = team.hear(temporary)
            files = manifest.files
        try:
            if team.rank == 0 and self._number is not None:
                self._number += 1
                manifest = replace(manifest, number=self._number)
            task = partial(commit, self.directory, temporary, files, manifest, self._newest)
            saved = self._writer.several_times(partial(task, is_whole=len(team.firsts) == 1))
        except BaseException:
            if team.rank == 0:
                team.tell(temporary, None, is_copied=False)
            raise
        note_latest(saved.path)
        if team.rank == 0:
            team.tell(temporary, saved.manifest, is_copied=is_copied)
        if is_copied and store is not None:
            store.upload(saved)
        self._newest = saved
        return saved
