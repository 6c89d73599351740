"""Where the checkpoints of a run are, and a draft of one there: a hidden folder."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....engine import State, ranks
from ...files import printable, remove_path, synchronise
from ..directory import (
    Checkpoints,
    Directory,
    Saved,
    Verify,
    chosen,
    next_number,
    telling_failures,
    verified_at,
    write_part,
)
from ..format import Checksums, Keep, Manifest, Payload, TensorInfo
from .team import Files, Team

logger: logging.Logger = logging.getLogger("camshaft")


class Depot:
    """Where the checkpoints of a run are: one directory, that all of its ranks see.

    A save is drafted in a hidden folder there, to which all ranks write. When all have written,
    rank 0 gives it its name.
    """

    def __init__(
        self, directory: str | Path, team: Team | None = None, *, is_export: bool = False
    ) -> None:
        """Open nothing yet; to an export, rank 0 alone writes, what a claim keeps."""
        self.directory: Path = Path(directory).absolute()  # the script may change its directory
        self._given = Path(directory)
        """As the script names it, for messages of the start."""
        self.home: Directory = Directory(self.directory)
        self.team: Team = team or Team(self.directory, is_alone=is_export)
        self.lineage: tuple[str, int] = ("", 0)
        """The name of the run and the count of its starts; see `Manifest.run`."""
        self.spared: Path | None = None
        """A checkpoint that is never dropped."""
        self.held: frozenset[int] = frozenset()
        """Iterations whose checkpoints are not dropped yet, as something still awaits them."""
        self.newest: Saved | None = None
        """The one that the next save replaces, if both are of the same iteration."""
        self._is_export = is_export
        self._why: tuple[int, str] = (0, "")
        """The iteration of the newest save, and its reasons."""
        self._is_open = False

    def open(self) -> None:
        """Make and lock the directory, and remove unfinished files of killed runs; see `Team`."""
        if not self._is_open:
            self._lock()
            self.team.open()

    def _lock(self) -> None:
        with ranks.on_all_ranks(f"write to {self.directory}"):
            Manifest().refuse_large({}, self.team.size)
            if self.team.is_first_here:
                self.home.lock()
            self._is_open = True

    def close(self) -> None:
        """Let other runs write there."""
        self._is_open = False
        self.home.unlock()

    def refuse_earlier_run(self) -> None:
        """Refuse a new run beside the checkpoints of an earlier one, which it would drop."""
        if found := Checkpoints(self.directory):
            raise FileExistsError(
                f"{self.directory} holds checkpoints of an earlier run, such as "
                f"{found[-1].path.name}; pass resume=True to go on with it, start_over=True to "
                "move them aside, or choose another directory for a new run; run(state=...) "
                "carries on a state at hand"
            )

    def begin(self, *, is_anew: bool) -> None:
        """Begin a new run: refuse the checkpoints of an earlier one, or move them aside."""
        if not is_anew:
            self.refuse_earlier_run()
            return
        with ranks.on_all_ranks("start over"):
            if ranks.rank() == 0 and (place := self.home.set_aside()) is not None:
                logger.warning("starts over: the checkpoints of an earlier run are in %s", place)

    def carry_on(self) -> None:
        """Go on with a state that is at hand, beside the checkpoints that are there."""

    def find(
        self, which: bool | str | Path, keep: Keep, alone: Verify
    ) -> tuple[Saved | None, list[str]]:
        """The checkpoint to resume from, and on rank 0 the names of broken ones; all ranks call."""
        broken = list[str]()

        def choose(verify: Verify) -> Saved | None:
            found = Checkpoints(self._given, verify)
            if which not in (True, "latest", "best"):
                saved: Saved | None = verified_at(Path(str(which)), verify)
            else:
                saved = found.best_by(keep.bests[0]) if which == "best" else found.latest()
                broken.extend(sorted(found.broken))
                if saved is None and (name := self.home.latest):
                    logger.warning(
                        "%s/LATEST names %s, which is not there, nor is any other checkpoint: a "
                        "new run begins. If a copy has left them out, stop it, and bring them",
                        *(self._given, printable(name)),
                    )
            next_number(found)  # a run that cannot save should not begin
            return saved

        return chosen(choose, alone), broken

    def go_on_from(self, saved: Saved) -> None:
        """Let the next save replace this checkpoint, if both are of the same iteration."""
        path = saved.path.absolute()
        if path.parent == self.directory and path.resolve() != self.spared:
            self.newest = replace(saved, path=path)
            self._why = (saved.manifest.iteration, saved.manifest.reason)

    def reasons(self, state: State[Any, Any], reasons: list[str]) -> str:
        """The reasons of a save, after those of an earlier save of the same iteration."""
        iteration, text = self._why
        text = text if iteration == state.iteration else ""
        for reason in reasons:
            if f", {reason}, " not in f", {text}, ":
                text = f"{text}, {reason}" if text else reason
        self._why = (state.iteration, text)
        return text

    def claims(self, keep: Keep) -> Keep:
        """The claims by which checkpoints stay here."""
        return keep

    def is_wanted(self, manifest: Manifest, keep: Keep) -> bool:
        """False for an export that no claim would keep, were it written now."""
        if not self._is_export:
            return True
        found = self.home.scan()
        new = replace(manifest, number=next_number(found))
        return new.number in keep.claimed([*(each.manifest for each in found), new])

    def new_draft(self, manifest: Manifest) -> Draft:
        """A hidden folder for a save, whose name is the same on all ranks."""
        return Draft(self, manifest, self.team.temporary(manifest.iteration))

    def hide_unclaimed(self, keep: Keep, broken: Collection[str]) -> list[Path]:
        """The directories of checkpoints that no claim keeps, under hidden names."""
        try:
            return self.home.hide_unclaimed(self.claims(keep), broken, self.spared, self.held)
        except OSError as error:  # the save itself has not failed
            logger.warning("older checkpoints stay in %s: %s", self.directory, error)
            return []


@dataclass(eq=False)
class Draft:
    """A checkpoint that is being written: ranks write their files, then it gets its name."""

    depot: Depot
    manifest: Manifest
    path: Path

    def write(
        self, files: Mapping[str, Payload], meant: Mapping[str, TensorInfo]
    ) -> Mapping[str, Checksums]:
        """Write this rank's files, which hold the pieces that are meant; wait for the disk."""
        team, home, newest = self.depot.team, self.depot.home, self.depot.newest
        if team.is_first_here:
            home.renew()
        if team.size > 1:
            written = write_part(self.path, files, meant, newest)
            synchronise(self.path)  # rank 0 commits what other hosts have written
            return written
        place, _ = home.place_for(self.manifest.iteration, newest)
        with telling_failures(place):
            return write_part(self.path, files, meant, newest)

    def tell(self, written: Files | None, failure: BaseException | None) -> Manifest | None:
        """Tell rank 0 what this rank has written; on a rank that commits, the whole manifest."""
        files = self.depot.team.report(self.path, written, failure)
        return None if files is None else replace(self.manifest, files=files)

    def commit(self, manifest: Manifest, *, is_whole: bool = True) -> Saved:
        """Give it its name, once all ranks have written; see `Directory.commit`."""
        depot = self.depot
        depot.newest = depot.home.commit(self.path, manifest, depot.newest, is_whole=is_whole)
        return depot.newest

    def committed(self, saved: Saved) -> None:
        """Tell others that it has its name."""

    def give_up(self) -> None:
        """Remove what ranks have written."""
        if self.depot.team.is_first_here:
            remove_path(self.path)
