"""Runs in each process of a trial: keeps its writes in the trial, reports, kills it.

A trial's processes find this file as `sitecustomize`, so it imports the standard library alone. Its
audit hook (PEP 578) hears `camshaft.Checkpoint.open`, `.begin`, `.save` and `.close`. If the trial
is a replay, it reports and kills nothing, and lets the player follow the run instead.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from inspect import currentframe
from pathlib import Path
from typing import Any

VARIABLE = "CAMSHAFT_PROVE"
"""Names the file that says what a trial is; each of its processes has it in its environment."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.mkdir": (1, "name"),
    "os.remove": (1, "name"),
    "os.rmdir": (1, "name"),
    "os.rename": (2, "name"),
    "os.link": (2, "name"),
    "os.symlink": (2, "name"),
    "os.truncate": (1, "copy"),
    "shutil.rmtree": (1, "copy"),
}
"""By audit event: the number of leading path arguments, and if names or contents change."""
CHECKPOINT = re.compile(r"iteration-\d{10,}(\.\d+)?|LATEST")


def holds_checkpoints(directory: str | Path) -> bool:
    """True if a directory holds a run's checkpoints."""
    with suppress(OSError), os.scandir(directory) as entries:
        return any(CHECKPOINT.fullmatch(entry.name) for entry in entries)
    return False


def is_in(path: str, directory: str) -> bool:
    """True if a path is a directory or in it; both are absolute and normal."""
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def processes_of(trial: str) -> Iterator[int]:
    """The other processes that belong to a trial, where the system shows their environment."""
    mark = f"{VARIABLE}={trial}".encode()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError):
            own = not name.isdecimal() or int(name) == os.getpid()
            if not own and mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                yield int(name)


def kill_all(trial: str, group: int | None = None) -> None:
    """SIGKILL to the processes of a trial, and to those of a process group."""
    if group is not None:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(10):  # a process may start another one in the meantime
        found = list(processes_of(trial))
        for process in found:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.02)


class Hook:
    """One process of a trial."""

    def __init__(self, file: str) -> None:
        self.file = file
        given = json.loads(Path(file).read_text())
        self.home: Any = given["home"]
        self.place: Any = given["place"]
        self.notes: Any = given["notes"]
        self.start: Any = given["start"]
        self.kill: Any = given["kill"]
        self.replay: Any = given["replay"]
        self.rank: int = int(os.environ.get("RANK", "0"))
        self._own = threading.local()
        self._temporary = (os.path.realpath(tempfile.gettempdir()), "/dev", "/proc")
        self._directories: set[str] = set()
        self._before = self._operations = 0
        self._counts = False
        self._counts_to: int | None = None
        self._state: Any = None
        self._ways: dict[str, Callable[..., None]] = {
            "open": self._open,
            "camshaft.Checkpoint.open": self._begins_to_open,
            "camshaft.Checkpoint.begin": self._begins,
            "camshaft.Checkpoint.save": self._saves,
            "camshaft.Checkpoint.close": self._closes,
            **{event: partial(self._change, *each) for event, each in CHANGES.items()},
        }

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Handle an audit event; Python calls this."""
        way = self._ways.get(event)
        if way is None or getattr(self._own, "work", False):
            return
        self._own.work = True
        try:
            way(*arguments)
        finally:
            self._own.work = False

    def _open(self, path: Any, mode: Any, flags: Any) -> None:
        self._operation(path)
        if isinstance(flags, int) and flags & WRITING:
            self._write(path, "empty" if flags & os.O_TRUNC else "copy")

    def _change(self, paths: int, what: str, *arguments: Any) -> None:
        if what == "name":
            self._operation(arguments[paths - 1])
        for path in arguments[:paths]:
            self._write(path, what)

    def _write(self, given: Any, what: str) -> None:
        """Make a path the trial's own before it is written; refuse one that is the user's."""
        if isinstance(given, int):
            return
        path = os.path.abspath(os.fsdecode(given))
        if not is_in(path, self.place):
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if is_in(path, self.place):
            with suppress(FileExistsError, FileNotFoundError):  # another rank was faster
                self._make_own(path, what)
        elif is_in(path, self.home):
            within = os.path.relpath(path, self.home).split(os.sep)
            if not any(each.startswith(".") or each == "__pycache__" for each in within):
                self._refuse(f"the script writes to {path} by its absolute path")
        elif path.endswith(".pyc") or "__pycache__" in path:
            return
        elif self._is_called_by_camshaft() and not any(is_in(path, d) for d in self._temporary):
            self._refuse(f"a handler writes to {path}, outside of the working directory")

    def _make_own(self, path: str, what: str) -> None:
        """Replace links to the user's directories and files by the trial's own."""
        at = self.place
        *outer, last = os.path.relpath(path, self.place).split(os.sep)
        for name in outer:
            at = os.path.join(at, name)
            if os.path.islink(at) and os.path.isdir(target := os.path.realpath(at)):
                if is_in(target, self.place):
                    continue
                names = [] if holds_checkpoints(target) else os.listdir(target)
                os.unlink(at)
                os.mkdir(at)
                for each in names:
                    os.symlink(os.path.join(target, each), os.path.join(at, each))
        at = os.path.join(at, last)
        if what == "name":
            return
        if not os.path.islink(at):
            if os.path.isfile(at) and os.stat(at).st_nlink > 1:  # another name may be the user's
                shutil.copy2(at, f"{at}.own")
                os.replace(f"{at}.own", at)
            return
        target = os.path.realpath(at)
        if is_in(target, self.place) or not is_in(target, os.sep) or target.startswith("/dev/"):
            return
        os.unlink(at)
        if os.path.isdir(target):
            os.mkdir(at)
        elif what == "copy" and os.path.exists(target):
            shutil.copy2(target, at)

    def _is_called_by_camshaft(self) -> bool:
        frame = currentframe()
        while frame is not None:
            module = str(frame.f_globals.get("__name__")).split(".")[0]
            if module != __name__ and module not in sys.stdlib_module_names:
                return module == "camshaft"
            frame = frame.f_back
        return False

    def _refuse(self, problem: str) -> None:
        self._note(
            {
                "event": "refused",
                "problem": f"{problem}, so that a trial would write to files of yours; let the "
                "script take this path relative to its working directory, such as by an argument "
                "or by os.environ.get",
            }
        )
        raise PermissionError(f"camshaft prove: {problem}")

    def _begins_to_open(self, handler: Any, state: Any) -> None:
        audit_torch_save()
        directory = os.path.abspath(str(handler.directory))
        if not is_in(directory, self.place):
            self._refuse(f"Checkpoint({str(handler.directory)!r}) is not in the working directory")
        with suppress(FileExistsError, FileNotFoundError):
            self._make_own(directory, "empty")
        self._directories.add(directory)

    def _begins(self, handler: Any, state: Any) -> None:
        if self.replay:
            player: Any = import_module("camshaft.handlers.tools.replay.player")
            player.play(self.replay, handler, state, self._note)
            return
        self._state = state
        self._tell("begin", handler, state)
        if self.kill and self.kill["kind"] == "moment" and self.rank == self.kill["rank"]:
            threading.Thread(target=self._wait_to_kill, daemon=True).start()

    def _saves(self, handler: Any, state: Any) -> None:
        if self.replay:
            return
        self._tell("save", handler, state)
        self._counts, due = True, self._is_due()
        if due and self.kill["kind"] == "moment":  # the thread that waits was not fast enough
            self._die()
        self._counts_to = self.kill["operation"] if due else None
        self._operations = 0

    def _closes(self, handler: Any, state: Any) -> None:
        if self.replay:
            return
        self._tell("close", handler, state)
        if self._state is state:
            self._before, self._state = self._reached(), None

    def _operation(self, path: Any) -> None:
        """Count what is done to the files of a save, and kill the process before one of them."""
        if not self._counts or isinstance(path, int):
            return
        name = os.path.abspath(os.fsdecode(path))
        if not any(is_in(name, each) for each in self._directories):
            return
        self._operations += 1
        if self._counts_to is not None and self._operations >= self._counts_to:
            self._counts_to = None
            if not (delay := self.kill["delay"]):
                self._die(in_save=True)
            threading.Timer(delay, self._die, [True]).start()

    def _reached(self) -> int:
        return self._before + (self._state.iteration if self._state is not None else 0)

    def _is_due(self) -> bool:
        planned = self.kill and self.rank == self.kill["rank"]
        return bool(planned and self._reached() >= self.kill["iteration"])

    def _wait_to_kill(self) -> None:
        while not self._is_due():
            time.sleep(0.0005)
        time.sleep(self.kill["delay"])
        self._die()

    def _die(self, in_save: bool = False) -> None:
        self._own.work = True
        self._note({"event": "killed", "iteration": self._reached(), "in_save": in_save})
        if self.kill["all"]:
            kill_all(self.file)
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _tell(self, event: str, handler: Any, state: Any) -> None:
        facts_of = import_module("camshaft.handlers.tools.prove.witness").facts_of
        note = {"event": event, "reached": self._reached(), "operations": self._operations}
        try:
            note |= facts_of(event, handler, state)
        except Exception as error:
            note |= {"problem": f"{type(error).__name__}: {error}"}
        directory = os.path.relpath(os.path.abspath(handler.directory), self.place)
        self._note(note | {"directory": directory})

    def _note(self, note: dict[str, Any]) -> None:
        name = f"{self.start:03}-{self.rank:05}-{os.getpid()}.jsonl"
        line = json.dumps({"rank": self.rank, "time": time.time(), **note}) + "\n"
        with open(os.path.join(self.notes, name), "a", encoding="utf-8") as file:
            file.write(line)


def audit_torch_save() -> None:
    """Audit the files that torch.save opens in C++."""
    writer: Any = getattr(sys.modules.get("torch.serialization"), "_open_zipfile_writer_file", None)
    if writer is None or hasattr(writer, "camshaft"):
        return
    write = writer.__init__

    def audited(own: Any, name: Any, *others: Any) -> None:
        sys.audit("open", name, "w", WRITING)
        write(own, name, *others)

    writer.__init__, writer.camshaft = audited, True


def install() -> None:
    """Hear the audit events of this process, and run the `sitecustomize` that this one hides."""
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != own]
    if VARIABLE in os.environ:
        sys.addaudithook(Hook(os.environ[VARIABLE]))
    if (spec := PathFinder.find_spec("sitecustomize", sys.path)) is not None and spec.loader:
        spec.loader.exec_module(module_from_spec(spec))


if __name__ == "sitecustomize":
    install()
