"""The saves of one handler in one run: asked for, copied, and given to the thread that writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ....engine import State, ranks
from ....engine.checks import Unsaved
from ..background import BackgroundWriter
from ..destination import Destination
from ..directory import saved_at
from ..format import Manifest
from ..frozen import FrozenWeights
from ..round_trip import RoundTrip
from ..sharding import Layouts
from ..staging import Staging
from ..together import Taken, check_weights
from .agreeing import Agreement
from .content import Content, copied
from .describing import manifest_of, warn_of_missing, with_reasons
from .writing import Writing

Result = TypeVar("Result")
FAILED = "the last one failed"


class Recorder:
    """Writes one handler's checkpoints of one run, and holds the directory's lock.

    Every rank has a recorder; only the first rank's holds the lock.
    """

    def __init__(
        self,
        handler: object,
        to: Destination,
        spared: Path | None = None,
        *,
        together: bool = False,
    ) -> None:
        """Write nothing yet.

        Args:
            handler: Whose checkpoints these are.
            to: Where they are written, and how.
            spared: A checkpoint that is never dropped.
            together: True if each rank writes files of its own, not the first one all.
        """
        self.handler = handler
        self.directory = Path(to.directory).absolute()  # the script may change its directory
        self.frozen: FrozenWeights | None = None
        """The frozen weights, if saves leave them out."""
        self.unsaved: Unsaved | None = None
        """The script's objects that the run changes and that are not among the engine's objects."""
        self.round_trip = RoundTrip()
        """Tries at the first save whether objects can be put back."""
        self.layouts = Layouts()
        """How tensors lie on the ranks, from save to save."""
        self._writing = Writing(self.directory, to.keep, spared)
        self._staging = Staging() if to.background else None
        self._writer = BackgroundWriter(to.background, to.retries, to.on_failure)
        self._agreement = Agreement(self.directory)
        self._together = together
        self._why: tuple[int, str] = (0, "")
        """The iteration of the newest save, and its reasons."""
        self._is_open = False
        self._are_compared = False

    def open(self) -> None:
        """Make and lock the directory, and remove what a killed run had not finished."""
        if self._is_open:
            return
        with ranks.on_all_ranks(f"write to {self.directory}"):
            if ranks.rank() == 0:
                self._writing.lock.acquire()
            self._is_open = True
        if self._is_shared:
            self._agreement.meet()

    def go_on_from(self, path: Path) -> None:
        """Let the next save replace this checkpoint, if both are of the same iteration."""
        path = path.absolute()
        if path.parent == self.directory and path.resolve() != self._writing.spared:
            self._writing.newest = saved = saved_at(path)
            self._why = (saved.manifest.iteration, saved.manifest.reason)

    def prepare(self, state: State[Any, Any], *, of_all: bool) -> list[str]:
        """The reasons to save at this commit point; empty if the handler was not asked.

        With `of_all`, `state.save("why")` without `by=` also asks this handler.
        """
        meant = [self.handler, None] if of_all else [self.handler]
        asked = [why for why, by in state.control.saves if any(by is each for each in meant)]
        if asked:
            self.open()
            warn_of_missing(state, self._writing.keep, self.handler)
        return asked

    def compare(self, objects: Mapping[str, Any]) -> None:
        """Before the first save, check that all ranks hold the same weights; all call this.

        Raises:
            ValueError: Ranks hold other weights, which are no shards of one.
        """
        if not self._are_compared:
            check_weights(objects)
            self._are_compared = True

    def record(
        self,
        state: State[Any, Any],
        make: Callable[[], Content],
        reasons: list[str],
        *,
        only_claimed: bool = False,
        broken: Collection[str] = (),
    ) -> None:
        """Copy what `make` gives, write the copy, and drop the checkpoints that no claim keeps.

        On ranks that write together, all ranks call this, and `make` gives the part of each. When
        this returns, the run may change; an error in writing is raised by the next call or by
        `wait`. A save of the same iteration as the save before replaces it, with the reasons of
        both. With `only_claimed`, a save that no claim would keep is not written. Checkpoints that
        are `broken` are ignored.
        """
        iteration, earlier = self._why
        reason = with_reasons(earlier if iteration == state.iteration else "", reasons)
        self._why = (state.iteration, reason)
        manifest = manifest_of(state, reason, self._writing.keep)
        if self._is_shared:
            self._record_together(make, manifest, only_claimed, broken)
            return
        self.wait()
        made = self.attempt(lambda: copied(make(), self._staging))
        if made is not None:
            write = partial(self._writing.alone, made, manifest, only_claimed, broken)
            self._writer.start(write, partial(self._ask_again, state))

    def attempt(self, task: Callable[[], Result]) -> Result | None:
        """Run a part of a save; None if it failed and `on_failure` is `"warn"`."""
        return self._writer.attempt(task)

    def wait(self) -> None:
        """Wait until the last save is on the disk."""
        self._writer.wait()

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, and release the directory."""
        together = ranks.on_all_ranks("write its last checkpoint")
        with nullcontext() if state.error is not None else together:  # ranks that fail do not meet
            self._is_open = False
            if state.error is not None:
                self._agreement.give_up()
            try:
                self._writer.close(self._writing.lock.release)
            finally:  # close raises the error, so no commit point has to
                saves = state.control.saves
                saves[:] = [each for each in saves if each != (FAILED, self.handler)]

    @property
    def _is_shared(self) -> bool:
        return self._together and ranks.world_size() > 1

    def _record_together(
        self,
        make: Callable[[], Content],
        manifest: Manifest,
        only_claimed: bool,
        broken: Collection[str],
    ) -> None:
        def take() -> Content | None:
            self.wait()
            return self.attempt(make)

        agreed = self._agreement.copied_by_all(
            take,
            lambda: not only_claimed or self._writing.is_claimed(manifest),
            lambda content: self.attempt(lambda: copied(content, self._staging)),
        )
        if agreed is None:
            return
        content, made = agreed
        meant = content.layout.infos if isinstance(content, Taken) else {}
        saving = self._agreement.saving(manifest.iteration, self._writer.several_times)
        task = partial(self._writing.together, made, meant, manifest, saving, broken)
        self._writer.start_together(task, saving.tell_failure)
        if self._staging is None:
            with ranks.on_all_ranks("write its part of a checkpoint"):
                self.wait()

    def _ask_again(self, state: State[Any, Any]) -> None:
        """Ask for another save, so that the next commit point raises this save's error."""
        if ranks.world_size() == 1:  # several ranks have to be asked together
            state.save(FAILED, by=self.handler)
