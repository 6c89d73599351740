"""The training's end of the process that copies: it is started, heard, started again and ended."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from ..checkpoint import checkpoints
from .copying import ERRORS, FAILS
from .fetching import StoreError

logger: logging.Logger = logging.getLogger("camshaft")

START = f"from {__package__}.copying import main; main()"


class Copier:
    """The process that copies during one run; it is started again if it ends by itself."""

    def __init__(self) -> None:
        self.is_started: bool = False
        """False on other ranks than the first, and before the process is ready."""
        self.warnings: SimpleQueue[str] = SimpleQueue[str]()
        """The warnings of the process, for the journal."""
        self._behind = "it is not known what it holds"
        """The last report of the process on files that the store lacks."""
        self._refusal = ""
        """Why the process copies nothing to this store; empty if it does."""
        self._settings: dict[str, Any] = {}
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
        self._settings = {**settings, "fresh": False}
        self._launch(settings)
        try:
            self._wait_until_ready(settings["wait"])
        except StoreError as error:
            if not (settings["resume"] and checkpoints(settings["directory"])):
                raise
            self._launch({**self._settings, "failing": True})
            shown = settings["shown"]
            self._log(logging.WARNING, FAILS % (shown, str(error).removeprefix(f"{shown} ")))
        self.is_started = True

    def go(self) -> None:
        """Tell the process to begin to copy."""
        if self.is_started:
            self._say("go")

    def start_again(self) -> None:
        """Start the process again if it has ended by itself, and a new one may succeed."""
        if self.is_started and self._process.poll() is not None and not self._refusal:
            self._end(0)
            self._launch(self._settings)
            self._log(logging.WARNING, "the process that copies had ended; another goes on")
            self.go()

    def finish(self, seconds: float) -> str:
        """Copy the rest, for at most so many seconds; return a report on files still missing."""
        self.start_again()
        self._end(seconds)
        return self._refusal or self._behind

    def _launch(self, settings: dict[str, Any]) -> None:
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
        )
        self._reader = Thread(
            target=self._listen, args=(self._process,), name="camshaft-mirror", daemon=True
        )
        self._reader.start()
        self._say(json.dumps(settings))

    def _wait_until_ready(self, seconds: float) -> None:
        """Wait until the directory holds what the run is to go on from."""
        bound, answer = None, dict[str, Any]()
        while "ready" not in answer:
            try:
                answer = self._answers.get(timeout=bound)
            except Empty:
                text = f"{self._settings['shown']} has not answered for {seconds:g} s"
                answer = {"error": "StoreError", "text": text}
            if "error" in answer:
                self._end(0)
                kinds = {each.__name__: each for each in ERRORS}
                raise kinds[answer["error"]](answer["text"])
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

    def _listen(self, process: subprocess.Popen[str]) -> None:
        """Take what the process writes, line by line, until it ends."""
        assert process.stdout is not None
        is_ready = False
        for line in process.stdout:
            message = json.loads(line)
            if "level" in message:
                self._log(message["level"], message["text"])
            elif "behind" in message:
                self._behind = message["behind"]
            elif is_ready:
                self._refusal = message["text"]
                self._log(logging.ERROR, f"nothing more is copied: {message['text']}")
            else:
                self._answers.put(message)
                is_ready = "ready" in message
        if not is_ready:
            self._answers.put({"error": "OSError", "text": "the process that copies has ended"})

    def _log(self, level: int, text: str) -> None:
        """Log a message; keep a warning for the journal, too."""
        logger.log(level, "%s", text)
        if level >= logging.WARNING:
            self.warnings.put(text)
