"""Saves to the disks of hosts: beside a directory that they share, or where they share none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from ....engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ...checkpoint import Checkpoint
from ...checkpoint.directory import Checkpoints, Saved
from ...checkpoint.format import Checksums, Keep, Manifest
from ...checkpoint.save import Depot, Draft, SavingHandler
from .bring import bring_newest, bring_to_each_host, held_in, refuse_other_run
from .hosts import Hosts

if TYPE_CHECKING:
    from ..mirror import StoreProcess


@dataclass(frozen=True, eq=False)
class Local(SavingHandler):
    """Save the run to a disk of each host too: often and cheap, for a start after a failure.

    It is added before the `Checkpoint` of the run, which writes to a directory that all hosts
    share. Each host writes the files of its own ranks, and sends a copy to the next host, beside
    the training. A save counts when all hosts have all of it, so one lost host loses nothing. A
    start with `Checkpoint(..., resume=True)` takes the newest checkpoint of which each file is on
    some host, unless the shared directory has a later one. It puts the files together in the
    shared directory, which then has an ordinary checkpoint: any number of ranks can resume from it.

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

    keep: Keep = field(default=Keep.of("latest(2)"), init=False, repr=False)
    """While one is written, the one before is whole on all hosts."""
    retries = 0
    """The next save comes soon."""
    on_failure: Literal["raise", "warn"] = field(default="warn", init=False, repr=False)
    """A save that fails is left out, since the shared directory has the others."""

    directory: str | Path
    _: KW_ONLY
    when: EventEnum | Trigger = Events.ITERATION_COMPLETED(every=100)
    copies: Literal[0, 1] = 1

    def __post_init__(self) -> None:
        if self.copies not in (0, 1):
            raise ValueError(
                f"Local(copies={self.copies!r}): needs 1, for a copy on the next host, or 0"
            )
        super().__post_init__()

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Bring the newest checkpoint before `Checkpoint` looks, and save by the trigger."""
        engine.on(Events.LOADING)(self.begin)
        engine.on(self.when, stage=Stage.REPORT)(self.ask)
        engine.on(Events.SAVING, stage=Stage.REPORT)(self.save)
        engine.on(Events.CLOSED, stage=Stage.MEASURE)(self.close)

    def begin(self, state: State[Any, Any]) -> None:
        """Bring the newest checkpoint of the hosts' disks, and give the run its name.

        Raises:
            FileExistsError: A new run, and the disks hold checkpoints of an earlier one.
            ValueError: No `Checkpoint` follows, or it writes to the same directory.
        """
        saves = self._checkpoint(state)
        shared, own = saves.recorder(state).depot, _local(self.recorder(state).depot)
        shared.open()
        own.open()
        begins = state.is_new and not saves.start_over
        if begins and not saves.resume:
            own.refuse_earlier_run()
        run, starts = bring_newest(
            *(shared.home, own.home, own.hosts, saves.keep),
            is_wanted=begins and saves.resume in (True, "latest"),
        )
        if saves.start_over or not run:
            run = ranks.from_first(uuid4().hex)
        shared.lineage = own.lineage = run, starts + 1

    def save(self, state: State[Any, Any]) -> None:
        """Copy the run if a save was asked for; the copy is written in the background."""
        recorder = self.recorder(state)
        if reasons := recorder.prepare(state):
            self._checkpoint(state).record(state, recorder, reasons)

    def _checkpoint(self, state: State[Any, Any]) -> Checkpoint:
        """The handler whose saves these are: the one that resumes, or else the first."""
        both = state.engine.find(SavingHandler)
        found = [each for each in both[both.index(self) :] if isinstance(each, Checkpoint)]
        found = [each for each in found if each.resume] or found
        if not found or isinstance(found[0], LocalCheckpoint):
            raise ValueError(
                f"Local({str(self.directory)!r}): needs a Checkpoint after it, in a directory that "
                "all hosts share: engine.add(Local(...), Checkpoint(...)); if they share none, "
                "LocalCheckpoint(...) alone"
            )
        if Path(found[0].directory).resolve() == Path(self.directory).resolve():
            raise ValueError(
                f"Local({str(self.directory)!r}) and its Checkpoint name one directory: Local "
                "needs another one, on a disk of each host; or LocalCheckpoint(...) alone if the "
                "hosts share none"
            )
        return found[0]

    def depot(self, state: State[Any, Any]) -> LocalDepot:
        """The disks of all hosts."""
        return LocalDepot(self.directory, self.copies)

    def has_thread(self, state: State[Any, Any]) -> bool:
        """As its `Checkpoint` says."""
        return self._checkpoint(state).background


@dataclass(frozen=True, eq=False)
class LocalCheckpoint(Checkpoint):
    """Save the run where the hosts share no directory: a `Checkpoint` on a disk of each host.

    Each host writes the files of its own ranks and sends a copy to the next host. At least two
    checkpoints are kept. A start with `resume=True` gives each host the newest checkpoint of which
    every file is on some host, or in the store of a `Mirror`. See docs/guides/local-disks.md.

    Args:
        directory: A directory on a disk of each host, with the same path everywhere. The ranks
            that see the same one are a host.

    The other arguments are those of `Checkpoint`.

    Raises:
        ValueError: `resume="best"` or a path: hosts resume from the newest checkpoint alone.

    >>> LocalCheckpoint("/nvme/run", resume=True).directory
    '/nvme/run'
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume not in (True, False, None, "latest") or self.parent is not None:
            given = f"resume={str(self.resume)!r}" if self.parent is None else "parent=..."
            raise ValueError(
                f"LocalCheckpoint({given}): hosts that share no directory "
                "resume from the newest checkpoint alone, with resume=True; to begin from another "
                "one, copy it to a directory that all hosts share, or to each host"
            )

    def copy_to(self, state: State[Any, Any], store: StoreProcess) -> Hosts:
        """Let the hosts copy their files to a store; return the hosts.

        Raises:
            ValueError: They copy to another store already.
        """
        depot = _local(self.recorder(state).depot)
        depot.open()
        if depot.store not in (None, store):
            raise ValueError(
                f"LocalCheckpoint({str(self.directory)!r}): needs one Mirror in its engine, and "
                "there are several"
            )
        depot.store = store
        return depot.hosts

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, let it be copied, and release the directory."""
        try:
            super().close(state)
        finally:
            if state.error is None:
                _local(self.recorder(state).depot).copy_newest()

    def depot(self, state: State[Any, Any]) -> LocalDepot:
        """The disks of all hosts."""
        return LocalDepot(self.directory, is_numbered=True)

    def _find(self, which: str | Path, verify: Callable[[Saved], None]) -> Saved:
        place = Path(self.directory if which in ("latest", "best") else which)
        for newest in Checkpoints(place)[-1:]:
            if not all((newest.path / name).exists() for name in newest.manifest.files):
                raise ValueError(
                    f"checkpoint={str(which)!r}: {newest.path} has the files of this host's ranks "
                    "alone until the run is started again; name a whole checkpoint, such as one "
                    "that fetch(url, directory) has downloaded"
                )
        return super()._find(which, verify)


class LocalDepot(Depot):
    """The disks of all hosts: each commits its own files, with the manifest of rank 0."""

    def __init__(
        self, directory: str | Path, copies: int = 1, *, is_numbered: bool = False
    ) -> None:
        """Open nothing yet.

        Args:
            directory: A directory on a disk of each host.
            copies: How many other hosts get a copy.
            is_numbered: True if numbers go on from the largest on any host, since `keep` goes by
                them; False if each host counts what it has.
        """
        self.hosts: Hosts = Hosts(Path(directory).absolute(), copies=copies)
        super().__init__(directory, self.hosts)
        self.store: StoreProcess | None = None
        """Where the hosts copy checkpoints to, each its own files."""
        self.is_numbered = is_numbered
        self.number: int = 0
        """The number of the newest checkpoint. Before the first save: the largest on any host."""

    def open(self) -> None:
        """Find the hosts; the first rank of each locks its directory."""
        if not self._is_open:
            self.hosts.open()
            self._lock()

    def claims(self, keep: Keep) -> Keep:
        """At least two: while one appears on the hosts one by one, all have the one before."""
        return keep | Local.keep

    def refuse_earlier_run(self) -> None:
        """Refuse a new run where a host has checkpoints of an earlier one."""
        self.open()
        refuse_other_run(self.directory, self.hosts)

    def begin(self, *, is_anew: bool) -> None:
        """Name a new run; what an earlier one left on the disks is refused, or moved aside."""
        if not is_anew:
            self.refuse_earlier_run()
        self._bring(is_wanted=False, is_anew=is_anew)

    def find(
        self, which: bool | str | Path, keep: Keep, alone: Callable[[Saved], None]
    ) -> tuple[Saved | None, list[str]]:
        """Bring the newest checkpoint to each host."""
        brought = self._bring(is_wanted=True)
        if brought is None:
            return None, []
        with ranks.on_all_ranks(f"go on from {brought.path}"):
            if self.hosts.is_first_here:
                self.go_on_from(brought)
                if self.store is not None:
                    self.store.upload(brought)
        return brought, []

    def _bring(self, *, is_wanted: bool, is_anew: bool = False) -> Saved | None:
        run, starts, self.number, brought = bring_to_each_host(
            self.home, self.hosts, self.store, is_wanted=is_wanted
        )
        self._name("" if is_anew else run, starts)
        return brought

    def carry_on(self) -> None:
        """Go on with a state that is at hand, beside the checkpoints that are there."""
        with ranks.on_all_ranks(f"read {self.directory}"):
            own = held_in(self.directory) if self.hosts.is_first_here else {}
        found = [each for some in ranks.gathered([*own]) for each in some]
        self.number = max((each.number for each in found), default=0)
        newest = max(found, default=None)
        self._name(newest.run if newest else "", newest.start if newest else 0)

    def _name(self, run: str, starts: int) -> None:
        """Note which run it is, and which start of it."""
        self.lineage: tuple[str, int] = (run or str(ranks.from_first(uuid4().hex)), starts + 1)

    def close(self) -> None:
        """Let other runs write there; serve no files any more."""
        self.hosts.close()
        super().close()

    def copy_newest(self) -> None:
        """Let the last checkpoint be copied to the store."""
        if self.hosts.is_first_here and self.store is not None and self.newest is not None:
            self.store.upload(self.newest)

    def new_draft(self, manifest: Manifest) -> Draft:
        """A hidden folder on each host, of one name."""
        return LocalDraft(self, manifest, self.team.temporary(manifest.iteration))


class LocalDraft(Draft):
    """A checkpoint that appears on each host, with the manifest of rank 0."""

    is_copied: bool = False
    """True if each host copies its own files to the store."""

    def tell(
        self, written: Mapping[str, Checksums] | None, failure: BaseException | None
    ) -> Manifest | None:
        """Tell rank 0 what this rank has written; the manifest, on the first rank of a host."""
        manifest, depot = super().tell(written, failure), _local(self.depot)
        team, store = depot.hosts, depot.store
        if manifest is None:
            return None
        self.is_copied = store is not None and team.all_say(self.path, store.is_free())
        if team.rank > 0:
            manifest, self.is_copied = team.hear(self.path)
        elif depot.is_numbered:
            depot.number += 1
            manifest = replace(manifest, number=depot.number)
        return manifest

    def commit(self, manifest: Manifest, *, is_whole: bool = True) -> Saved:
        """Give this host's part its name."""
        return super().commit(manifest, is_whole=len(_local(self.depot).hosts.firsts) == 1)

    def committed(self, saved: Saved) -> None:
        """Let the other hosts commit theirs, and copy it to the store."""
        depot = _local(self.depot)
        depot.home.write_latest(saved.path)
        if depot.hosts.rank == 0:
            depot.hosts.tell(self.path, saved.manifest, is_copied=self.is_copied)
        if self.is_copied and depot.store is not None:
            depot.store.upload(saved)

    def give_up(self) -> None:
        """Let the other hosts know, and remove what ranks have written."""
        if (hosts := _local(self.depot).hosts).rank == 0:
            hosts.tell(self.path, None, is_copied=False)
        super().give_up()


def _local(depot: Depot) -> LocalDepot:
    assert isinstance(depot, LocalDepot)
    return depot
