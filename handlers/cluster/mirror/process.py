"""The training's end of the process that copies: it is started, heard, started again and ended."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from ...checkpoint import Checkpoints, Manifest, Saved
from ...files import record_of, remove_path
from .copying import ERRORS, FAILS
from .fetching import StoreError
from .parts import Host, Outbox

logger: logging.Logger = logging.getLogger("camshaft")

KINDS = {each.__name__: each for each in ERRORS}
START = f"""import os
os.write(1, b"\\n")
lines = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
from {__package__}.copying import main
main(lines)"""
"""What the process does: before any import that may print, its output becomes one for messages."""


class StoreProcess:
    """The process that copies during one run; it is started again if it ends by itself."""

    def __init__(self) -> None:
        self.is_started: bool = False
        """False on other ranks than the first, and before the process is ready."""
        self.warnings: SimpleQueue[str] = SimpleQueue[str]()
        """The warnings of the process, for the journal."""
        self._behind: str
        """The last report of the process on files that the store lacks."""
        self._refusal = ""
        """Why the process copies nothing to this store; empty if it does."""
        self._settings: dict[str, Any] = {}
        self._found: dict[str, list[str]] = {}
        """By manifest, the files in the store, for hosts that share no directory."""
        self._run: str = ""
        self._outbox: Outbox | None = None
        self._answers = SimpleQueue[dict[str, Any]]()
        self._process: subprocess.Popen[str]
        self._reader: Thread

    def start(self, settings: dict[str, Any]) -> None:
        """Start the process, and wait until it has fetched what is newer in the store.

        Raises:
            OSError: The store cannot be read, or not in time, and the directory holds nothing to
                go on from; or the store holds another run.
            ValueError: The store holds checkpoints, and all are broken.
        """
        if settings["hosts"] is not None:
            self._outbox = Outbox(Path(settings["directory"]), Host(**settings["hosts"]))
        settings = {**settings, "outbox": self._outbox and str(self._outbox.folder)}
        self._settings = {**settings, "fresh": False}
        self._launch(settings)
        try:
            self._wait_until_ready(settings["wait"])
        except StoreError as error:
            if not (settings["resume"] and Checkpoints(settings["directory"])):
                raise
            self._launch({**self._settings, "failing": True})
            shown = settings["shown"]
            self._log(logging.WARNING, FAILS % (shown, str(error).removeprefix(f"{shown} ")))
        self.is_started = True

    def manifests(self) -> list[Manifest]:
        """Those of the checkpoints in the store, as the run found it."""
        return [Manifest.of_json(each) for each in self._found]

    def has(self, manifest: Manifest) -> set[str]:
        """The files of a checkpoint in the store, as the run found it."""
        return {*self._found.get(manifest.to_json(), ())} & manifest.files.keys()

    def give(self, manifest: Manifest, name: str, path: Path) -> None:
        """Download a file of a checkpoint, and compare its checksums.

        Raises:
            BrokenCheckpoint: The store does not have what the manifest says.
            OSError: The store cannot be read.
        """
        self._say(json.dumps({"fetch": str(path), "name": name, "manifest": manifest.to_json()}))
        answer: dict[str, Any] = {}
        while not answer.keys() & {"fetched", "error"}:  # the first one may be that it is ready
            answer = self._answers.get()
        if not answer.get("fetched"):
            raise KINDS[answer["error"]](answer["text"])

    def run(self) -> str:
        """The name of the run in the store."""
        return self._run

    def is_free(self) -> bool:
        """True if this host has copied all, so that the next checkpoint may be copied."""
        return self.is_started and self._outbox is not None and self._outbox.is_empty()

    def upload(self, saved: Saved) -> None:
        """Copy this host's files of a checkpoint; links keep them until then."""
        if self.is_started and self._outbox and (problem := self._outbox.put(saved)):
            self._log(logging.WARNING, problem)

    def go(self) -> None:
        """Tell the process to begin to copy."""
        if self.is_started:
            self._say("go")

    def start_again(self) -> None:
        """Start the process again if it has ended by itself, and a new one may succeed."""
        if self.is_started and self._process.poll() is not None and not self._refusal:
            self._end(0)
            self._launch(self._settings)
            self.go()
            self._log(logging.WARNING, "the process that copies had ended; another goes on")

    def finish(self, seconds: float) -> str:
        """Copy the rest, for at most so many seconds; return a report on files still missing."""
        self.start_again()
        self._end(seconds)
        if self._outbox is not None:
            remove_path(self._outbox.folder)
        return self._refusal or self._behind

    def _launch(self, settings: dict[str, Any]) -> None:
        self._behind = "it is not known what it holds"  # what an earlier process said is no answer
        # Secrets go through the pipe: everybody can see the command line of a process. A session of
        # its own keeps signals of the terminal away, as those are for the training.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
            text=True,
            errors="replace",
        )
        self._answers = SimpleQueue[dict[str, Any]]()
        heard = self._process, self._answers
        self._reader = Thread(target=self._listen, args=heard, name="camshaft-mirror", daemon=True)
        self._reader.start()
        self._say(json.dumps(settings))

    def _wait_until_ready(self, seconds: float) -> None:
        """Wait until the directory holds what the run is to go on from."""
        bound: float | None = None
        answer: dict[str, Any] = {}
        while "ready" not in answer:
            try:
                answer = self._answers.get(timeout=bound)
            except Empty:
                text = f"{self._settings['shown']} has not answered for {seconds:g} s"
                answer = {"error": "StoreError", "text": text}
            if "error" in answer:
                self._end(0)
                raise KINDS[answer["error"]](answer["text"])
            self._found = dict(answer.get("found", []))
            self._run = answer.get("run", "")
            bound = seconds if "asking" in answer else None

    def _end(self, seconds: float) -> None:
        """Let the process copy what is left, for at most so many seconds; then end it."""
        self._say("finish")
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(5)
            for pipe in filter(None, (self._process.stdin, self._process.stdout)):
                with suppress(OSError):
                    pipe.close()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, which its reader notices
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _listen(self, process: subprocess.Popen[str], answers: SimpleQueue[dict[str, Any]]) -> None:
        """Take what the process writes, line by line, until it ends."""
        assert process.stdout is not None
        is_ready = False
        try:
            for line in process.stdout:
                if (message := record_of(line.encode())) is None:
                    continue  # printed by something else, or torn by a kill
                if "level" in message:
                    self._log(message["level"], message["text"])
                elif "behind" in message:
                    self._behind = message["behind"]
                elif is_ready and "fetched" not in message:
                    self._refusal = message["text"]
                    self._log(logging.ERROR, f"nothing more is copied: {message['text']}")
                else:
                    answers.put(message)
                    is_ready = is_ready or "ready" in message
        finally:
            answers.put({"error": "OSError", "text": "the process that copies has ended"})

    def _log(self, level: int, text: str) -> None:
        """Log a message; keep a warning for the journal, too."""
        logger.log(level, "%s", text)
        if level >= logging.WARNING:
            self.warnings.put(text)
