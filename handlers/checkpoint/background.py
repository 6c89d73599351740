"""Writing in a thread beside the run: one task at a time, with retries."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from .format import UnreadableError, needing_memory

logger = logging.getLogger("camshaft")

FIRST_WAIT = 1.0
"""Seconds before the first retry; each further wait is twice as long."""

Result = TypeVar("Result")
OnFailure = Literal["raise", "warn"]


@dataclass(eq=False)
class BackgroundWriter:
    """Runs one task at a time, in a thread or, without `background`, at once.

    A task that raises an OSError is retried. An `UnreadableError` is not: the next attempt would
    raise it again. After the last retry, `on_failure` decides: `"raise"` the error in the next call
    of `wait`, or `"warn"` and go on.
    """

    background: bool
    retries: int
    on_failure: OnFailure
    _pool: ThreadPoolExecutor | None = field(default=None, init=False)
    _pending: Future[None] | None = field(default=None, init=False)
    _process: int = field(default_factory=os.getpid, init=False)

    def start(self, task: Callable[[], object], failed: Callable[[], object]) -> None:
        """Start a task after the one before; call `failed` if the task raises in the thread."""
        self.wait()
        if not self.background:
            self.attempt(lambda: self.several_times(task))
            return
        self.attempt(lambda: self._submit(lambda: self.several_times(task), failed))

    def start_together(
        self, task: Callable[[], object], failed: Callable[[Exception], None]
    ) -> None:
        """Start a task that all ranks start; the next `wait` raises its error, on all of them.

        The task makes its own retries. `failed` is called if no thread could be started for it.
        """
        self.wait()
        try:
            if self.background:
                return self._submit(task, lambda: None)
            self.attempt(task)
        except Exception as error:
            if self.background:
                failed(error)
            self._pending = Future()
            self._pending.set_exception(error)

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

    def _submit(self, task: Callable[[], object], failed: Callable[[], object]) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "camshaft-checkpoints")
        try:
            with needing_memory("start the thread that writes checkpoints"):
                self._pending = self._pool.submit(self._carry_out, task, failed)
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
