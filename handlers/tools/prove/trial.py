"""A trial: the command in a copy of the working directory, started until it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ...files import printable
from . import hook
from .hook import CHECKPOINT, VARIABLE, holds_checkpoints, kill_all

LARGEST_COPY = 1 << 20
"""Bytes of the largest file that is copied; a larger one is a link."""
MOST_IN_ONE, MOST_ENTRIES = 2000, 20_000
"""Entries of the largest directory that is gone through, and of all; others are links."""
LARGEST_WEIGHTS = 1 << 30
"""The same of a file that a library may write without Python's knowledge, such as torch.save."""
LOGS = (".jsonl", ".csv", ".log", ".txt")
WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".onnx", ".h5", ".npz", ".db")
OWN_PATHS = ("PATH", "HOME", "VIRTUAL_ENV", "OLDPWD", "LD_LIBRARY_PATH")
"""Variables that keep their paths into the working directory."""


class UntriedError(Exception):
    """The script cannot be tried; the message says why, and what to do."""


class Started(Protocol):
    """A process, as `subprocess.Popen` starts it."""

    pid: int

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code, negative after a signal."""


Start = Callable[[Sequence[str], Path, Mapping[str, str], Path], Started]


def start_process(
    command: Sequence[str], place: Path, environment: Mapping[str, str], output: Path
) -> Started:
    """Start a command as the leader of a group, without input."""
    with output.open("ab") as file:
        return subprocess.Popen(
            command,
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@dataclass
class Ended:
    """How one start of the command ended."""

    code: int
    seconds: float
    notes: list[dict[str, Any]]
    """The reports of its processes, in the order of time."""

    @property
    def killed(self) -> dict[str, Any] | None:
        """The note of the killed process, if one was killed."""
        return next((each for each in self.notes if each["event"] == "killed"), None)


@dataclass
class Trial:
    """One run of the command, from its first start to its end, in a place of its own."""

    home: Path
    """The user's working directory."""
    root: Path
    command: Sequence[str]
    start_one: Start = start_process
    run: Path | None = None
    """The directory of a run of the user's whose files but checkpoints the trial begins with."""
    asked: dict[str, Any] | None = None
    """What to compute of that run again; None if a trial is to be killed, or to end."""
    starts: list[Ended] = field(default_factory=list[Ended])

    def __post_init__(self) -> None:
        self.command = with_camshaft(self.command)
        self.root.mkdir(parents=True)
        self.place: Path = self.root / "files"
        self.notes: Path = self.root / "notes"
        self.notes.mkdir()
        mirror(self.home, self.place, skip=self.root.parent, run=self.run)
        hooks = self.root / "hook"
        hooks.mkdir()
        shutil.copyfile(hook.__file__, hooks / "sitecustomize.py")

    @property
    def output(self) -> Path:
        """What the command wrote to its standard output and error."""
        return self.root / "output.txt"

    def start(self, kill: dict[str, Any] | None = None, limit: float | None = None) -> Ended:
        """Start the command and wait until it ends, or has killed itself as `kill` says."""
        number = len(self.starts)
        file = self.root / f"start-{number}.json"
        what: dict[str, Any] = {
            "home": str(self.home),
            "place": str(self.place),
            "notes": str(self.notes),
        }
        what |= {"start": number, "kill": kill, "replay": self.asked}
        file.write_text(json.dumps(what))
        began = time.monotonic()
        program, *arguments = self.command
        command = [program, *map(self._moved, arguments)]
        process = self.start_one(command, self.place, self._environment(file), self.output)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            kill_all(str(file), process.pid)
        if code is None:
            process.wait()
            raise UntriedError(f"it did not end within {limit:.0f} s{self.last_words()}")
        ended = Ended(code, time.monotonic() - began, self._reports(number))
        self.starts.append(ended)
        for each in ended.notes:
            if each["event"] == "refused":
                raise UntriedError(each["problem"])
        return ended

    @property
    def reports(self) -> list[dict[str, Any]]:
        """What the processes of all starts reported, in the order of time."""
        return [note for start in self.starts for note in start.notes]

    def last_words(self) -> str:
        """The end of what the command wrote, for an error."""
        with self.output.open("rb") as file:
            file.seek(max(0, self.output.stat().st_size - 4000))
            lines = file.read().decode(errors="replace").splitlines()[-12:]
        shown = "\n".join(f"    {printable(line)}" for line in lines if line.strip())
        return f"; its last lines:\n{shown}" if shown else "; it wrote no output"

    def _reports(self, number: int) -> list[dict[str, Any]]:
        files = sorted(self.notes.glob(f"{number:03}-*.jsonl"))
        lines = [line for file in files for line in file.read_text().splitlines(keepends=True)]
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return sorted(found, key=lambda note: note["time"])

    def _environment(self, file: Path) -> dict[str, str]:
        own = {n: v if n in OWN_PATHS else self._moved(v) for n, v in os.environ.items()}
        paths = [str(self.root / "hook"), own.get("PYTHONPATH", "")]
        own["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return own | {VARIABLE: str(file), "PWD": str(self.place)}

    def _moved(self, text: str) -> str:
        """An argument or a variable, with absolute paths into the home as paths into the trial."""
        if str(self.home) == os.sep:
            return text
        ends = f"[{os.sep}{os.pathsep}]"
        path = rf"(^|[={os.pathsep}]){re.escape(str(self.home))}(?={ends}|\Z)"
        return re.sub(path, lambda found: f"{found[1]}{self.place}", text)


def mirror(source: Path, place: Path, skip: Path, run: Path | None = None) -> None:
    """Make a working directory like another one: small files copied, others linked, no runs.

    Of a `run` that is asked for, the files but checkpoints are copied.
    What lies near the top comes first; directories that come late in a large tree are links.
    """
    queue, entries = deque([(source, place)]), 0
    whole = {source, *([] if run is None else [run, *run.parents])}
    while queue:
        directory, own = queue.popleft()
        found = [*os.scandir(directory)]
        entries += len(found)
        if directory not in whole and (len(found) > MOST_IN_ONE or entries > MOST_ENTRIES):
            own.symlink_to(directory)
            continue
        own.mkdir()
        for entry in found:
            path, copy = Path(entry.path), own / entry.name
            if path == skip or entry.name == "__pycache__" or CHECKPOINT.fullmatch(entry.name):
                continue
            if entry.is_symlink() and path not in whole:
                copy.symlink_to(os.path.realpath(path))
            elif entry.is_dir():
                is_apart = entry.name.startswith(".") or holds_checkpoints(path)
                if is_apart and path not in whole:
                    copy.symlink_to(path)
                else:
                    queue.append((path, copy))
            elif entry.is_file():
                most = LARGEST_WEIGHTS if path.suffix in WEIGHTS else LARGEST_COPY
                small = entry.stat().st_size <= most
                if small or path.suffix in LOGS or ".tfevents." in entry.name:
                    shutil.copy2(path, copy)
                else:
                    copy.symlink_to(path)


def with_camshaft(command: Sequence[str]) -> list[str]:
    """The command, by the Python of this process if the `python` on the PATH lacks Camshaft."""
    program, *arguments = command
    found = shutil.which(program)
    if program in ("python", "python3") and found != sys.executable:
        needed = "all(map(importlib.util.find_spec, ('torch', 'camshaft')))"
        check = f"import importlib.util, sys; sys.exit(not {needed})"
        if found is None or subprocess.run([found, "-c", check], capture_output=True).returncode:
            program = sys.executable
    return [program, *arguments]


def on_ranks(command: Sequence[str], ranks: int) -> list[str]:
    """The command on so many ranks, by torchrun."""
    program, *arguments = command
    if not Path(program).name.startswith("python"):
        raise UntriedError(
            f"--ranks {ranks} needs a command such as `python train.py`; it is `{program} ...`"
        )
    options = ["--standalone", f"--nproc-per-node={ranks}"]
    return [program, "-m", "torch.distributed.run", *options, *arguments]


def as_interrupted(number: int, frame: object) -> None:
    """End as after Ctrl-C, so that processes are killed and files removed."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)
