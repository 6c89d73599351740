"""The batches of a run of the bridge, and the events that ignite fires between two of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ignite.engine import Events

from ....engine import State
from ....engine.data import Feed, parts_by_epoch

if TYPE_CHECKING:
    from .run import Run

END: Any = object()
# A member of an Enum that is looked up in its class costs a call; a global does not.
ASKED_FOR_BATCH, GOT_BATCH = Events.GET_BATCH_STARTED, Events.GET_BATCH_COMPLETED
ENDED, BEGUN = Events.DATALOADER_STOP_ITERATION, Events.ITERATION_STARTED


class Reached(IntEnum):
    """How far the next batch has come: an interrupted run goes on from there."""

    NOTHING = 0
    END_OF_DATA = 1
    ASKED_FOR_BATCH = 2
    GOT_BATCH = 3
    ITERATION_STARTED = 4


class IgniteFeed(Feed[Any]):
    """Reads as ignite does: an epoch counts its batches, and the data begin anew where they end.

    What ignite's handlers see before the process function is announced here, so that a handler
    that ends the run there ends it before the loop begins the iteration.
    """

    def __init__(self, run: Run, data: Iterable[Any], state: State[Any, Any]) -> None:
        super().__init__(data, state, repeats=True)  # a pass follows each one, whatever the epochs
        self.run = run
        self.reached: Reached = Reached.NOTHING
        self.batches: int = 0
        """The number of batches of the epoch so far."""
        self.fire: Any = run.engine._fire_event
        """Fires an event in each iteration."""
        self.announces: bool = run.engine.state.dataloader is not None
        """False if `run` got no data: ignite then fires no GET_BATCH events."""
        self.was_left: bool = False
        """True if a handler ended the run before the process function was called."""

    def agree_on_length(self) -> int | None:
        """The number of batches of an epoch, as ignite's state has it."""
        length: int | None = self.run.engine.state.epoch_length
        return length

    def complete_epoch(self, all_read: bool) -> bool:
        """True if the epoch is complete: as in ignite, also one without batches.

        A limit inside of an epoch ends the run, as `terminate` does.
        """
        state = self.state
        if all_read:
            self.run.follow_limits()  # a handler of the last iteration may have changed them
        if state.iteration_in_epoch == state.epoch_length:
            return True
        has_ended = all_read and not self.was_left
        if has_ended and state.iteration == state.max_iterations:
            self.run.engine.should_terminate = True
            return False
        return has_ended

    def restore(self, *, is_over: bool = False) -> None:
        """Restore the random generators, and the epoch that the samplers have."""
        super().restore(is_over=is_over)
        if self.position is not None and self.position.number:
            # The script itself sets a number that comes after this one.
            self.source.tell(self.position.number)

    def restart(self) -> None:
        """Restart the data of ignite's state, which a handler may have replaced."""
        self.run.has_ended_epoch = False
        engine = self.run.engine
        if self.announces and engine.state.dataloader is not self.data:
            self.source.close()
            del self.source
            self.state.control.data = engine.state.dataloader
            self.data: Iterable[Any] = engine.state.dataloader
        engine._dataloader_iter = self.begin_pass(self._number()).batches

    def _number(self) -> int | None:
        """The number of the next pass: samplers keep the epoch that the script has set."""
        numbers = (getattr(each, "epoch", None) for each in parts_by_epoch(self.data))
        given = next((each for each in numbers if isinstance(each, int) and each >= 0), None)
        known = 0 if self.position is None else self.position.number - 1
        return None if given is None or given == known else given + 1

    def epoch(self) -> Iterator[Any]:
        """The remaining batches of this epoch, each after the events that ignite fires first."""
        run, state = self.run, self.state
        engine: Any = run.engine
        ignite = engine.state
        always = engine.fires_always
        handlers = engine._event_handlers
        fire = self.fire = engine._fire_event if always else engine._announce
        self.was_left = False
        self.batches = batches = state.iteration_in_epoch
        reached, self.reached = self.reached, Reached.NOTHING
        begins_anew = reached == Reached.END_OF_DATA
        if batches and reached == Reached.NOTHING and self._is_complete(ignite):
            return  # the run was left after the epoch's last batch
        try:
            self._open_data()
            while True:
                if reached <= Reached.END_OF_DATA:
                    ignite.batch = None
                    if begins_anew:
                        self.restart()
                    if self.announces and (not begins_anew or reached == Reached.END_OF_DATA):
                        if always or handlers.get(ASKED_FOR_BATCH):
                            fire(ASKED_FOR_BATCH)
                            if run.has_orders:
                                self._carry_out(Reached.ASKED_FOR_BATCH)
                                return
                        else:
                            engine.last_event_name = ASKED_FOR_BATCH
                if reached <= Reached.ASKED_FOR_BATCH:
                    batch: Any = next(engine._dataloader_iter, END)
                    if batch is END:
                        if self._is_last(ignite, begins_anew):
                            run.follow_limits()
                            return
                        if self.announces:
                            fire(ENDED)
                            if run.has_orders:
                                self._carry_out(Reached.END_OF_DATA)
                                return
                        begins_anew, reached = True, Reached.NOTHING
                        continue
                    ignite.batch, ignite.output = batch, None
                    if self.announces and (always or handlers.get(GOT_BATCH)):
                        fire(GOT_BATCH)
                        if run.has_orders:
                            self._carry_out(Reached.GOT_BATCH)
                            return
                self.batches = batches = batches + 1
                begins_anew = False
                if reached <= Reached.GOT_BATCH:
                    ignite.iteration += 1
                    if always or handlers.get(BEGUN):
                        fire(BEGUN)
                        if run.has_orders:
                            self._carry_out(Reached.ITERATION_STARTED)
                            return
                    else:
                        engine.last_event_name = BEGUN
                reached = Reached.NOTHING
                state.iteration = ignite.iteration - 1  # the loop counts on from here
                yield ignite.batch
                if self._is_complete(ignite):
                    return
        except Exception as error:
            run.end_epoch_after(error)

    def close(self) -> None:
        """Release the data, unless an interrupted run is to go on with them."""
        if not self.run.is_interrupted:
            super().close()

    def _open_data(self) -> None:
        if self.run.engine._dataloader_iter is not None:
            return
        is_resumed = self.position is not None and self.position.number > 0
        opened = self.reopen_pass() if is_resumed else self.begin_pass(self._number())
        self.run.engine._dataloader_iter = opened.batches

    def _goes_on(self) -> bool:
        """False: `epoch` opens the data, after the events that ignite fires before."""
        return False

    def _carry_out(self, reached: Reached) -> None:
        """Carry out requests of handlers, each of which ends the epoch here."""
        if self.run.carry_out(self.batches):
            self.was_left = True
            self.reached = reached
        elif self.run.has_ended_epoch:
            self.restart()

    def _is_complete(self, ignite: Any) -> bool:
        """True if no batch follows in this epoch."""
        if self.batches != ignite.epoch_length and ignite.iteration != ignite.max_iters:
            return False
        self.run.follow_limits()
        return True

    def _is_last(self, ignite: Any, has_begun_anew: bool) -> bool:
        """True if the end of the data ends the epoch."""
        if ignite.epoch_length is None:
            ignite.epoch_length = self.batches
            if ignite.max_iters is not None:
                ignite.max_epochs = math.ceil(ignite.max_iters / self.batches)
            return True
        if has_begun_anew and not self.run.engine._is_done(ignite):
            warnings.warn(
                "Data iterator can not provide data anymore: it began anew without a batch, "
                f"after {ignite.iteration} iterations; epochs that follow are empty",
                stacklevel=2,
            )
        return has_begun_anew
