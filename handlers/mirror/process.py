"""The training's end of the process that copies."""

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

from .copying import ERRORS

logger = logging.getLogger("camshaft")

START = f"from {__package__}.copying import main; main()"


class CopyingProcess:
    """Starts the process, passes its messages on, and ends it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.behind = "it is not known what it holds"
        """What the store lacks, as the process has reported last."""
        self.refusal = ""
        """Why the process copies nothing to this store; empty if it does."""
        self.warnings = SimpleQueue[str]()
        """The warnings of the process, for the journal."""
        self._answers = SimpleQueue[dict[str, Any]]()
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
        self._reader = Thread(target=self._listen, name="camshaft-mirror", daemon=True)
        self._reader.start()
        self._say(json.dumps(settings))

    @property
    def has_ended(self) -> bool:
        """True if the process has ended by itself, and a new one may succeed."""
        return self._process.poll() is not None and not self.refusal

    def wait_until_ready(self, seconds: float) -> None:
        """Wait until the directory holds what the run is to go on from.

        Raises:
            OSError: The store cannot be read, or not in so many seconds, or holds another run.
            ValueError: The store holds checkpoints, and all are broken.
        """
        bound, answer = None, dict[str, Any]()
        while "ready" not in answer:
            try:
                answer = self._answers.get(timeout=bound)
            except Empty:
                answer = {"error": "StoreError", "text": f"has not answered for {seconds:g} s"}
            if "error" in answer:
                self.end(0)
                kinds = {each.__name__: each for each in ERRORS}
                raise kinds[answer["error"]](answer["text"])
            bound = seconds if "asking" in answer else None

    def go(self) -> None:
        """Tell the process to begin to copy."""
        self._say("go")

    def end(self, seconds: float) -> None:
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

    def _listen(self) -> None:
        assert self._process.stdout is not None
        is_ready = False
        for line in self._process.stdout:
            told = json.loads(line)
            if "level" in told:
                self.log(told["level"], told["text"])
            elif "behind" in told:
                self.behind = told["behind"]
            elif is_ready:
                self.refusal = told["text"]
                self.log(logging.ERROR, f"nothing more is copied: {told['text']}")
            else:
                self._answers.put(told)
                is_ready = "ready" in told
        self._answers.put({"error": "OSError", "text": "the process that copies has ended"})

    def log(self, level: int, text: str) -> None:
        """Log a message; keep a warning for the journal, too."""
        logger.log(level, "%s", text)
        if level >= logging.WARNING:
            self.warnings.put(text)
