"""A thread beside the run that writes: one task at a time, with retries."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeVar

from ..format import UnreadableError, needing_memory

logger = logging.getLogger("camshaft")

FIRST_WAIT = 1.0
"""Seconds before the first retry; each further wait is twice as long."""

Result = TypeVar("Result")
OnFailure = Literal["raise", "warn"]
Task = Callable[[Exception | None], object]


@dataclass(eq=False)
class CheckpointWriter:
    """Runs one task at a time, in a thread or, without `background`, at once.

    An OSError that a task raises is decided by `on_failure`: `"raise"` it in the next call of
    `wait`, or `"warn"` and go on.
    """

    background: bool
    retries: int
    on_failure: OnFailure
    _pool: ThreadPoolExecutor | None = field(default=None, init=False)
    _pending: Future[None] | None = field(default=None, init=False)
    _process: int = field(default_factory=os.getpid, init=False)

    def start(self, task: Task, failed: Callable[[], object]) -> None:
        """Start a task after the one before; call `failed` if it raises where nobody waits for it.

        The task is called with None. If no thread can be started for it, it is called at once, with
        the error.
        """
        self.wait()
        if not self.background:
            self.attempt(partial(task, None))
            return
        try:
            self._pending = self._submit(partial(self._carry_out, partial(task, None), failed))
        except Exception as error:
            self._pending = Future()
            try:
                self._carry_out(partial(task, error), failed)
                self._pending.set_result(None)
            except Exception as raised:
                self._pending.set_exception(raised)

    def attempt(self, task: Callable[[], Result]) -> Result | None:
        """Run a task and return its result; None after an OSError that `on_failure` only logs."""
        try:
            return task()
        except OSError as error:
            self._decide(error)
            return None

    def _decide(self, error: OSError) -> None:
        if self.on_failure == "raise":
            raise error
        logger.error("%s; the run goes on without it", error)

    def wait(self) -> None:
        """Wait for the task under way, if any."""
        if os.getpid() != self._process:  # a forked process does not have the thread
            self._pool = self._pending = None
        if self._pending is not None:
            try:
                self._pending.result()
            finally:
                if self._pending.done():  # a KeyboardInterrupt may end the wait before the task
                    self._pending = None

    def close(self, last: Callable[[], None]) -> None:
        """Wait for the task under way, then call `last`, also if the wait is interrupted."""
        try:
            self.wait()
        finally:
            if self._pool is None:
                last()
            else:
                self._pool.submit(last)
                self._pool.shutdown()
                self._pool = None

    def _submit(self, task: Callable[[], None]) -> Future[None]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "camshaft-checkpoints")
        try:
            with needing_memory("start the thread that writes checkpoints"):
                return self._pool.submit(task)
        except BaseException:
            self._pool = None  # the pool would keep the task, for which it could not start a thread
            raise

    def _carry_out(self, task: Callable[[], object], failed: Callable[[], object]) -> None:
        try:
            self.attempt(task)
        except BaseException:
            failed()
            raise

    def several_times(self, task: Callable[[], Result]) -> Result:
        """Run a task, with retries after an OSError, and return its result.

        After an `UnreadableError`, the next attempt would end in the same way.

        Raises:
            OSError: The last attempt has failed.
        """
        for attempt in range(self.retries):
            try:
                return task()
            except UnreadableError:
                raise
            except OSError as error:
                wait = FIRST_WAIT * 2**attempt
                again = f"{attempt + 1} of {self.retries}"
                logger.warning("%s; trying again in %g s (%s)", error, wait, again)
                time.sleep(wait)
        return task()
