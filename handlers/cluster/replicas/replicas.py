"""A run on several replicas, of which any may be lost: its steps, its saves and its rows go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from ....engine import Engine, Events, Stage, State, ranks
from ....engine.modules import generators_in, in_training, is_spread
from ....engine.state import capture_generators, restore_generators
from ....engine.update import Update
from ...checkpoint import Checkpoint
from ...checkpoint.load import remember_settings
from ..local import Local, LocalCheckpoint
from ..transfer import Lost
from .crew import lighthouses
from .handed_over import put_run, run_as_bytes
from .replica import MOST, Replica, Result
from .shards import ShardedBatch, trained_by

logger: logging.Logger = logging.getLogger("camshaft")

PAUSE = 0.05
"""Seconds until a new replica asks again for the run."""


@dataclass(eq=False)
class Connections:
    """Where the connections of a run are kept; never saved."""

    replica: Replica | None = None


@dataclass(frozen=True, eq=False)
class Replicas:
    """Compute each step on several replicas, and lose any of them without losing the step.

    A replica is a process, or the ranks over which `fully_shard` splits a model. Each is started
    with the same script and reads the same batches. A batch is cut into `shards`, and each replica
    computes some of them. If one is killed, the others compute the step again with the same batch,
    and go on. One that is started again gets the whole run from them:
    weights, optimizer, schedules, generators, the place in the data, what handlers remember. The
    sums of a step are made in one order, and each shard has random numbers of its own, so the
    weights have the same bits whoever has computed what. A run on one replica has them too.

    The replica that is longest in the run writes checkpoints and logs; if it is lost, the next one
    does. If all are lost, the script that is started again resumes from the newest checkpoint.

    Add it before a `Checkpoint`. It needs `torchft_lighthouse`, a program of
    torchft, where all processes reach it: see docs/guides/replicas.md.

    Args:
        lighthouse: The address of the lighthouse, such as `"http://10.0.0.1:29510"`.
        shards: Into how many pieces each batch is cut: the most replicas that share the work. The
            result depends on it, so it stays the same over all starts.
        address: The address of this machine at which other replicas reach this one; by default
            that from which it reaches the lighthouse.
        timeout: Seconds to wait for another replica in a step. Longer than the slowest start of a
            replica that joins, until its first batch.

    Raises:
        ModuleNotFoundError: torchft is not installed.
        ValueError: An argument has a value that it cannot have.
    """

    lighthouse: str
    _: KW_ONLY
    shards: int = 8
    address: str | None = field(default=None, repr=False)  # machines have their own
    timeout: float = 60.0

    def __post_init__(self) -> None:
        lighthouses()
        if type(self.shards) is not int or self.shards < 1:
            raise ValueError(f"Replicas(shards={self.shards!r}): needs a number of pieces, from 1")
        if not self.timeout > 0:
            raise ValueError(f"Replicas(timeout={self.timeout!r}): needs seconds greater than 0")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Take the place of the process function, and meet the other replicas before each step.

        Raises:
            ValueError: Other code has taken that place.
        """
        if engine.around is not None:
            raise ValueError("another handler is around the process function of this engine")
        engine.around = self.step
        engine.on(Events.LOADING, stage=Stage.MEASURE)(self.check)
        engine.on(Events.LOADING)(self.join)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.ask)
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.REPORT)(self.ask)
        engine.on(Events.SAVING, stage=Stage.MEASURE)(self.drop_saves)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.leave)

    def check(self, state: State[Any, Any]) -> None:
        """Refuse what replicas cannot share."""
        engine, (update,) = state.engine, self._updates(state)
        if ranks.world_size() > 1 and not all(map(is_spread, trained_by(update))):
            raise ValueError(
                "this replica has several ranks, and some parameters are not split over them. "
                "Split all of them before the optimizer is made: fully_shard(model), or "
                "ranks.prepare(model, shard='blocks.*'). Or start each process without torchrun, "
                "as a replica of its own"
            )
        if update.accumulate > 1:
            raise ValueError(
                f"accumulate={update.accumulate}: Replicas cuts each batch into shards, which go "
                "through the model one by one. Leave accumulate out, and let the batches be "
                f"{update.accumulate} times as large"
            )
        if update.scaler is not None or update.needs_closure:
            raise ValueError(
                "Replicas adds up gradients over shards: it works neither with a gradient scaler "
                "(take precision='bf16') nor with an optimizer that evaluates the loss itself"
            )
        if found := generators_in(engine.objects):
            raise ValueError(
                f"{', '.join(sorted(found))} draws random numbers of its own, which would depend "
                "on who computes a shard. Draw from torch, NumPy or random themselves: Replicas "
                "seeds these for each shard"
            )
        handlers = list(engine.handlers.values())
        before = handlers[: handlers.index(self)]
        if early := [each for each in before if isinstance(each, Checkpoint)]:
            raise ValueError(
                f"{engine.name_of(early[0])} was added before Replicas, and would load its run "
                "before it is known that others have it: engine.add(Replicas(...)) first"
            )
        if disks := [each for each in handlers if isinstance(each, Local | LocalCheckpoint)]:
            raise ValueError(
                f"{engine.name_of(disks[0])} makes copies that replicas do not need: a replica "
                "that joins gets the run from another one. Leave it out"
            )
        # A handler whose files each replica would write says so by this attribute.
        if other := [each for each in handlers if getattr(each, "writes_files", False)]:
            raise ValueError(
                f"{engine.name_of(other[0])} would write on each replica: beside Replicas, only "
                "Checkpoint and loggers leave this to one of them"
            )
        if not state.is_new:
            raise ValueError(
                "Replicas begins a run, joins one, or resumes one by Checkpoint(resume=True); it "
                "cannot carry on a state that is given: leave state= out of run()"
            )

    def join(self, state: State[Any, Any]) -> None:
        """Get the run from other replicas, or begin it."""
        place = state.recall(self, Connections, saved=False)
        replica = place.replica = Replica(self.lighthouse, self.shards, self.address, self.timeout)
        remember_settings(state)
        while True:
            try:
                files = replica.begin()
                break
            except Lost as error:
                logger.debug("waits for the run of the other replicas: %s", error)
                time.sleep(PAUSE)
        state.control.writes = files is None
        if files is not None:
            put_run(state, files, state.engine.name_of(self))
            logger.info("joined the other replicas after iteration %d", state.iteration)

    def ask(self, state: State[Any, Any]) -> None:
        """Meet the others at the next commit point, unless the run is over."""
        if state.limit_reached is None:
            state.control.at_commit, state.control.has_requests = self.meet, True

    def meet(self, state: State[Any, Any], leave: Callable[[], None]) -> None:
        """Agree on who computes the next step; give the run to those who are new."""
        replica = self._replica(state)
        if replica.is_ready:  # it has joined, or caught up, for this step
            replica.is_ready = False
            return
        if ranks.any_rank(state.stop_reason is not None):
            return
        for _ in range(MOST):
            now = replica.meet("commit", state.iteration)
            self._take_over(state, replica)
            if now.new and replica.gives:
                leave()
                replica.offer_run(state.iteration, run_as_bytes(state))
            else:
                replica.keep_run()
            try:
                replica.connect()
                return
            except Lost as error:
                replica.failed(error)
        raise _too_often()

    def step(
        self, process: Callable[[State[Any, Any], Any], Any], state: State[Any, Any], batch: Any
    ) -> Any:
        """Compute a step together, again and again until nobody is lost in it."""
        (update,) = self._updates(state)
        shards = ShardedBatch.of(update, process, state, batch, self.shards)
        rng = capture_generators()
        try:
            total, letters = self._result(state, shards)
        finally:
            restore_generators(rng)
        self._replica(state).offer_step(state.iteration, (total, letters))
        return shards.step(total, letters)

    def _result(self, state: State[Any, Any], shards: ShardedBatch) -> Result:
        replica = self._replica(state)
        used = in_training(state.engine.objects.values())

        def versions() -> list[tuple[int, int]]:
            return [(id(each), each._version) for module in used for each in module.buffers()]

        for _ in range(MOST):
            try:
                before = versions()
                result = replica.compute(shards)
                if before != versions():
                    raise RuntimeError(
                        "the forward pass changes buffers of the model, as batch norm does, which "
                        "then depend on who computes a shard. Take GroupNorm or LayerNorm with "
                        "Replicas, or freeze the statistics by module.eval()"
                    )
                return result
            except Lost as error:
                replica.failed(error)
            try:
                found = replica.catch_up(state.iteration)
                self._take_over(state, replica)
                if found is not None:
                    return found
            except Lost as error:
                replica.failed(error)
        raise _too_often()

    def drop_saves(self, state: State[Any, Any]) -> None:
        """Leave all saves to the replica that writes."""
        if not state.control.writes:
            state.saves[:] = [(reason, self) for reason, _ in state.saves]

    def leave(self, state: State[Any, Any]) -> None:
        """Wait for the replica that writes the end of the run, and part.

        Raises:
            RuntimeError: It has gone before.
        """
        place = state.recall(self, Connections, saved=False)
        state.control.at_commit = None
        if (replica := place.replica) is None:
            return
        place.replica = None
        try:
            if state.error is None and not state.is_interrupted:
                replica.end()
        except Lost as error:
            raise RuntimeError(
                "the replica that writes was lost while it wrote the end of the run. Start the "
                "script again: it resumes from the newest checkpoint, and writes what is missing"
            ) from error
        finally:
            replica.close()

    def _take_over(self, state: State[Any, Any], replica: Replica) -> None:
        """Write from now on, if whoever wrote before has gone."""
        if replica.is_first and not state.control.writes:
            logger.warning(
                "this replica writes from iteration %d on: the one before is lost", state.iteration
            )
            state.control.writes = True
            state.save("another replica was lost")  # it may have been lost while it saved

    def _replica(self, state: State[Any, Any]) -> Replica:
        replica = state.recall(self, Connections, saved=False).replica
        assert replica is not None  # it is there from LOADING to CLOSED
        return replica

    def _updates(self, state: State[Any, Any]) -> list[Update]:
        found = state.engine.find(Update)
        if len(found) != 1:
            raise ValueError(
                f"Replicas needs one Update among the handlers, and found {len(found)}: "
                "supervised() brings it; with a process function of your own, engine.add(update)"
            )
        return found


def _too_often() -> RuntimeError:
    return RuntimeError(
        f"{MOST} attempts at a step have failed: the warnings before say why. Other replicas may "
        "not reach this one at its address, which Replicas(address=...) sets"
    )
