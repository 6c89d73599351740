"""Which replicas take part in the next step: agreed with torchft's lighthouse."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import cached_property
from hashlib import blake2b
from importlib import import_module
from threading import Event, Thread
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import uuid4

from ..transfer import own_address

logger: logging.Logger = logging.getLogger("camshaft")

BEAT = 0.1
"""Seconds between two signs of life; the lighthouse takes who is silent for lost."""

Point = Literal["new", "commit", "inside"]
"""Where a replica is: before its run, at a commit point, or in a step that is tried again."""


@dataclass(frozen=True)
class Member:
    """A replica, as it tells the others of itself in each quorum."""

    id: str
    places: Sequence[str]
    """Where each of its ranks offers its part of the run."""
    stores: Sequence[str]
    """Where each of its ranks has a store for a process group."""
    shards: int
    point: Point = "new"
    iteration: int = 0
    """The iterations that it has completed."""
    since: int = -1
    """The iteration in which it joined; the longest there is the first, who writes."""
    failures: int = 0
    """How often it has failed to reach another one."""


@dataclass(frozen=True)
class Quorum:
    """The replicas of one step, in an order that is the same for all of them."""

    number: str
    present: tuple[Member, ...]
    own: str

    @cached_property
    def running(self) -> list[Member]:
        """Those whose run is under way, the longest there first."""
        return sorted(
            (each for each in self.present if each.point != "new"),
            key=lambda each: (each.since, each.id),
        )

    @cached_property
    def top(self) -> int:
        """The iterations that the foremost replica has completed."""
        return max((each.iteration for each in self.running), default=0)

    @cached_property
    def source(self) -> Member | None:
        """The replica that gives its run to new ones; None if none is at a commit point."""
        there = (e for e in self.running if e.point == "commit" and e.iteration == self.top)
        return next(there, None)

    @cached_property
    def new(self) -> list[Member]:
        """Those that have no run yet."""
        return sorted((e for e in self.present if e.point == "new"), key=lambda each: each.id)

    @cached_property
    def working(self) -> list[Member]:
        """Those that compute the next step; new ones do if they are given a run."""
        return [*self.running, *(self.new if self.source else [])]

    @property
    def index(self) -> int:
        """The place of this replica among those."""
        return [each.id for each in self.working].index(self.own)

    @cached_property
    def key(self) -> str:
        """A name for the connections of these replicas: another one after a failure."""
        failures = sum(each.failures for each in self.present)
        said = repr((self.number, failures, [each.id for each in self.working]))
        return blake2b(said.encode(), digest_size=12).hexdigest()


class Crew:
    """This replica's talk with the lighthouse, which its first rank has."""

    def __init__(self, lighthouse: str, timeout: float) -> None:
        """Connect, and begin to give signs of life.

        Raises:
            ModuleNotFoundError: torchft is not installed.
            ConnectionError: There is no lighthouse.
        """
        self._library, self._lighthouse, self._timeout = lighthouses(), lighthouse, timeout
        self.id: str = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._client, self._ended = self._connected(), Event()
        Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def meet(self, own: Member) -> Quorum:
        """Wait for the others, and agree with them on who takes part: those with equal settings.

        Raises:
            ConnectionError: The lighthouse has gone.
            ValueError: This replica has other settings than the first one.
        """
        end = time.monotonic() + self._timeout
        while True:
            try:
                found = self._client.quorum(
                    replica_id=self.id,
                    timeout=timedelta(seconds=self._timeout),
                    address=own.places[0],
                    store_address=own.stores[0],
                    step=own.iteration,
                    world_size=1,
                    shrink_only=False,
                    data=asdict(own),
                )
                break
            except TimeoutError:
                end = time.monotonic() + self._timeout
                logger.warning(
                    "this replica has waited %g s for others: the lighthouse needs more of them, "
                    "or some are still at work",
                    self._timeout,
                )
            except RuntimeError as error:  # it may be starting again
                if time.monotonic() > end:
                    raise self._gone(error) from error
                time.sleep(BEAT)
        members = tuple(Member(**each.data) for each in found.participants)
        now = Quorum(str(found.quorum_id), members, self.id)
        first = (now.running or now.new)[0]
        _check_alike(own, first)
        return replace(now, present=tuple(e for e in members if _settings(e) == _settings(first)))

    def close(self) -> None:
        """Give no more signs of life: the others go on without waiting for this replica."""
        self._ended.set()

    def _connected(self) -> Any:
        limit = timedelta(seconds=self._timeout)
        try:
            return self._library.LighthouseClient(self._lighthouse, limit)
        except (RuntimeError, TimeoutError) as error:
            raise self._gone(error) from error

    def _gone(self, error: BaseException) -> ConnectionError:
        return ConnectionError(
            f"the lighthouse at {self._lighthouse} does not answer ({error}); start one: "
            "torchft_lighthouse --bind <address>:29510 --min_replicas 1"
        )

    def _beat(self) -> None:
        client = self._connected()
        while not self._ended.wait(BEAT):
            try:
                client.heartbeat(self.id)
            except (RuntimeError, TimeoutError):  # the next quorum says so
                time.sleep(BEAT)


def lighthouses() -> Any:
    """The part of torchft that is used: the client of its lighthouse.

    Raises:
        ModuleNotFoundError: torchft is not installed.
    """
    try:
        return import_module("torchft.coordination")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'Replicas needs torchft: pip install "camshaft[replicas]"'
        ) from error


def _settings(member: Member) -> tuple[int, int]:
    return member.shards, len(member.places)


def _check_alike(own: Member, first: Member) -> None:
    if own.shards != first.shards:
        raise ValueError(
            f"Replicas(shards={own.shards}), and the replica {first.id} has {first.shards}: the "
            "sums of a step depend on it, so give all of them one number"
        )
    if len(own.places) != len(first.places):
        raise ValueError(
            f"this replica has {len(own.places)} ranks, and the replica {first.id} has "
            f"{len(first.places)}: a rank works with the rank of the same number in each other "
            "replica, so start all of them with equally many ranks"
        )


def address_towards(lighthouse: str) -> str:
    """The address of this machine from which it reaches the lighthouse."""
    parts = urlsplit(lighthouse)
    if not parts.hostname or not parts.port:
        raise ValueError(
            f"Replicas(lighthouse={lighthouse!r}): needs its address, such as 'http://host:29510'"
        )
    return own_address(parts.hostname, parts.port)
