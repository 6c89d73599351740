"""A run's checkpoints and logs, copied to an object store beside the run."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ....engine import Engine, Events, Stage, State, ranks
from ...checkpoint import Checkpoint
from ...journal import Journal
from ..local import LocalCheckpoint
from .logs import LOGS
from .parts import Host
from .process import StoreProcess
from .store import check_address, local_path, protocol_of, shown

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False, repr=False)
class Mirror:
    """Keep copies of the run's checkpoints and logs in an object store, and resume from there.

    It stands beside the `Checkpoint` of the run and copies its checkpoints: the files first,
    size and a part of each compared with what the store gives back, the manifest last. So the
    store shows whole checkpoints only. A process of its own does so; the run never waits, except
    at its end.

    Before `Checkpoint(..., resume=True)` loads, the newest good checkpoint of the store and the
    logs are fetched, unless the directory has them: a machine with an empty disk goes on. What the
    claims of `keep` no longer want, and the disk does not have, is removed from the store.

    With `LocalCheckpoint`, whose hosts share no directory, each host copies the files of its
    own ranks to a prefix of its own, such as `s3://bucket/run/host-1`; whoever resumes joins them.

    A store that fails does not end the run: a warning tells when it begins to fail, a line when it
    is good again, and another one at the end what it lacks.

    Args:
        url: Where the copies go: `s3://bucket/run`, or any other address that fsspec knows. Each
            run needs one of its own.
        options: Storage options for fsspec's file system, such as `{"endpoint_url": ...}`: plain
            values. Credentials are best left to the library, which finds them in the environment.
        logs: Which files besides checkpoints are copied and fetched: patterns of their paths in the
            directory of the `Checkpoint`.
        wait: Seconds for which the end of the run waits for the last copies, and its start for the
            first answer of the store.
        interval: Seconds between two looks for new checkpoints; longer while the store fails.

    Raises:
        ModuleNotFoundError: fsspec, or its library for this store, is not installed.
        TypeError: The options are not made of plain values.
        ValueError: fsspec knows no such addresses, a number makes no sense, or the copies would
            lie in memory.

    >>> Mirror("s3//bucket/run", wait=-1)
    Traceback (most recent call last):
    ...
    ValueError: Mirror(wait=-1): needs seconds that are not negative
    """

    writes_files: ClassVar[bool] = True
    url: str
    _: KW_ONLY
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    logs: Sequence[str] = LOGS
    wait: float = 60.0
    interval: float = 5.0

    def __post_init__(self) -> None:
        if not self.wait >= 0:
            raise ValueError(f"Mirror(wait={self.wait!r}): needs seconds that are not negative")
        if not self.interval > 0:
            raise ValueError(f"Mirror(interval={self.interval!r}): needs seconds greater than 0")
        if isinstance(self.logs, str):
            raise TypeError(f"Mirror(logs={self.logs!r}): needs a list of patterns")
        try:
            json.dumps(dict(self.options))
        except (TypeError, ValueError):
            raise TypeError(
                "Mirror(options=...): needs names and plain values, since the process that copies "
                "gets them as JSON; leave credentials to the environment"
            ) from None
        check_address(self.url)
        if protocol_of(self.url) == "memory":
            raise ValueError(
                f"Mirror({shown(self.url)!r}): the memory of the process that copies is gone when "
                "the run ends; to try a mirror out, write file:copies/run"
            )

    def __repr__(self) -> str:
        return f"Mirror({shown(self.url)!r})"

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Fetch before `Checkpoint` looks, copy during the run, and wait at its end."""
        engine.on(Events.LOADING, stage=Stage.MEASURE)(self.open)
        engine.on(Events.STARTED, stage=Stage.REPORT)(self.go)
        engine.on(Events.SAVING, stage=Stage.REPORT)(self.go_on)
        # After the loggers and the journal have written their last lines.
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Fetch what is newer in the store; the first rank does, and all wait.

        Raises:
            FileExistsError: The store holds another run.
            OSError: The store cannot be read, and the directory holds nothing to go on from.
            ValueError: There is no `Checkpoint`, the address lies in its directory, or all
                checkpoints in the store are broken.
        """
        saves, process = self._checkpoint(state.engine), self._process(state)
        is_here, hosts = ranks.rank() == 0, None
        if isinstance(saves, LocalCheckpoint):
            found = saves.copy_to(state, process)
            hosts = asdict(Host(found.number, len(found.firsts), found.members, found.size))
            is_here = found.is_first_here
        with ranks.on_all_ranks(f"begin to copy to {shown(self.url)}"):
            if is_here:
                process.start({**self._settings(saves), "fresh": state.is_new, "hosts": hosts})

    def go(self, state: State[Any, Any]) -> None:
        """Begin to copy: by now the logs of an earlier run are moved aside."""
        self._process(state).go()

    def go_on(self, state: State[Any, Any]) -> None:
        """Start the process that copies again if it has ended; note what it has warned of."""
        process = self._process(state)
        self._note_warnings(state, process)
        process.start_again()

    def close(self, state: State[Any, Any]) -> None:
        """Wait for the last copies, and report what the store lacks."""
        process = self._process(state)
        if not process.is_started:
            return
        behind = process.finish(self.wait)
        self._note_warnings(state, process)
        if behind:
            logger.warning(
                "%s is behind: %s; what is missing is copied when the script is started again here",
                *(shown(self.url), behind),
            )
        else:
            logger.info("%s holds all of the run", shown(self.url))
        self._note(state, "mirrored", behind=behind)

    def _note_warnings(self, state: State[Any, Any], process: StoreProcess) -> None:
        while not process.warnings.empty():
            self._note(state, "mirror", said=process.warnings.get())

    def _note(self, state: State[Any, Any], event: str, **more: str) -> None:
        for each in state.engine.find(Journal):
            each.note(state, event, to=shown(self.url), **more)

    def _process(self, state: State[Any, Any]) -> StoreProcess:
        return state.recall(self, StoreProcess, saved=False)

    def _checkpoint(self, engine: Engine[Any, Any]) -> Checkpoint:
        found = engine.find(Checkpoint)
        if len(found) != 1:
            raise ValueError(
                f"{self!r}: needs one Checkpoint in its engine, whose directory it copies; there "
                f"are {len(found)}"
            )
        return found[0]

    def _settings(self, saves: Checkpoint) -> dict[str, Any]:
        place, directory = local_path(self.url), Path(saves.directory).resolve()
        if place is not None and place.is_relative_to(directory):
            where = "the" if place == directory else "inside the"
            raise ValueError(
                f"{self!r}: is {where} directory of the Checkpoint itself, which needs no copy "
                "there; give a place on another disk or in a store"
            )
        return {
            "url": self.url,
            "shown": shown(self.url),
            "options": dict(self.options),
            "directory": str(Path(saves.directory).absolute()),
            "logs": list(self.logs),
            "interval": self.interval,
            "wait": self.wait,
            "resume": bool(saves.resume),
            "failing": False,
        }
