"""Does what a tutorial says, from top to bottom, and compares what comes out with what it shows.

    python tests/tutorials/follow.py docs/tutorials/own-step.md            # in an empty directory
    python tests/tutorials/follow.py docs/tutorials/own-step.md --write    # show what comes out

What a page tells its reader to do is in its blocks:

    ```python                    the next lines of one Python session
    ```python title="train.py"   a file to save; "train.py (more)" adds to that file
    ```console                   commands after "$ ", run by bash, each with its output below it
    ```text                      the output of the Python block just before it; without one, nothing

A ```text block with title="for example" may show anything else. Other blocks are for reading. `...`
stands for anything, and so does a place such as `train.py:9`. Decimal numbers may differ a little,
since another processor adds in another order; everything else has to be the same.
"""

import argparse
import atexit
import contextlib
import io
import math
import os
import re
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import IO

BLOCK = re.compile(r'^```(python|console)(?: title="([^"]+)")?\n(.*?)^```\n', re.M | re.S)
SHOWN = re.compile(r'\s*```text( title="for example")?\n(.*?)^```\n', re.M | re.S)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.M)
NUMBER = r"\d+\.\d+(?:e[+-]?\d+)?"
SCRIPT = re.compile(r"python (\w+\.py(?: [-\w./=]+)*)")
ANYTHING = r"\.\.\.|\S+\.py:\d+"  # the second: a line of a file, which moves


def agrees(shown: str, printed: str, tolerance: float = 0.05) -> bool:
    """Whether a page shows what was printed; `tolerance` is how much decimal numbers may differ."""
    shown, printed = (re.sub(r"[ \t\r]+", " ", text).strip() for text in (shown, printed))
    shown, printed = shown.replace(" \n", "\n"), printed.replace(" \n", "\n")
    pattern = "".join(
        ".*?"
        if re.fullmatch(ANYTHING, piece)
        else f"({NUMBER})"
        if re.fullmatch(NUMBER, piece)
        else re.escape(piece)
        for piece in re.split(rf"({ANYTHING}|{NUMBER})", shown)
    )
    if not (found := re.fullmatch(pattern, printed, re.S)):
        return False
    pairs = zip(re.findall(NUMBER, shown), found.groups(), strict=True)
    near = partial(math.isclose, rel_tol=tolerance, abs_tol=tolerance)
    return all(near(float(a), float(b)) for a, b in pairs)


class Reader:
    """Who follows a page: one Python session, and a shell, in the current directory."""

    def __init__(self, tolerance: float = 0.05) -> None:
        """Begin a session."""
        self.tolerance = tolerance
        self.session = sys.modules["__main__"] = ModuleType("__main__")
        self.output = io.StringIO()

    def python(self, source: str) -> str:
        """Run the next lines of the session; what they print."""
        start = self.output.tell()
        with contextlib.redirect_stdout(self.output), contextlib.redirect_stderr(self.output):
            exec(compile(source, "train.py", "exec"), vars(self.session))
        return self.output.getvalue()[start:]

    def command(self, line: str) -> str:
        """Run a command; what it prints, and what the shell says if it is killed."""
        with tempfile.TemporaryFile("w+") as output:
            if found := SCRIPT.fullmatch(line):
                code = run_script(found[1].split(), output)
            else:
                code = subprocess.run(["bash", "-c", line], stdout=output, stderr=output).returncode
            output.seek(0)
            printed = output.read()
        killed = code in (-9, 137)
        assert killed or not code, f"$ {line}\n{printed}"
        return printed + "Killed\n" * killed


def run_script(arguments: list[str], output: IO[str]) -> int:
    """Run a script in a process of its own that has torch already, if this one has it."""
    if (process := os.fork()) == 0:
        code = 1
        try:
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
            sys.argv, sys.path[0] = arguments, os.getcwd()
            runpy.run_path(arguments[0], run_name="__main__")
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def follow(text: str, reader: Reader) -> str:
    """Do what a page says; the page, with what came out where it shows something else."""
    pieces, place = [], 0
    for block in BLOCK.finditer(text):
        kind, name, source = block.groups()
        pieces.append(text[place : block.start()])
        place = block.end()
        if kind == "console":
            pieces.append(block[0].replace(source, COMMAND.sub(lambda c: run(c, reader), source)))
            continue
        pieces.append(block[0])
        if name:
            more = name.endswith(" (more)")
            with open(name.removesuffix(" (more)"), "a" if more else "w") as file:
                file.write("\n\n" * more + source)
            continue
        printed = reader.python(source)
        shown = SHOWN.match(text, place)
        if shown and shown[1] and printed:
            continue
        if not agrees(shown[2] if shown else "", printed, reader.tolerance):
            pieces.append(f"\n```text\n{printed.rstrip()}\n```\n")
            place = shown.end() if shown else place
    return "".join([*pieces, text[place:]])


def run(command: re.Match[str], reader: Reader) -> str:
    """A command as a page shows it, with what came out if that is something else."""
    printed = reader.command(command[1])
    if agrees(command[2], printed, reader.tolerance):
        return command[0]
    return "".join([f"$ {command[1]}\n", printed.rstrip(), "\n"[: len(printed)]])


def main() -> None:
    """Follow a page in the current directory; say where it differs, or write what came out."""
    parser = argparse.ArgumentParser(description="Do what a tutorial says.")
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true", help="into the page, what came out")
    options = parser.parse_args()
    os.environ["PATH"] = path()
    shown = options.page.read_text()
    found = follow(shown, Reader(0.0 if options.write else 0.05))
    if options.write:
        options.page.write_text(found)
    elif found != shown:
        from difflib import unified_diff

        lines = (each.splitlines(keepends=True) for each in (shown, found))
        sys.exit("".join(unified_diff(*lines, "the page shows", "what came out")))


def path() -> str:
    """The search path with the commands of this Python, and `camshaft` of this checkout."""
    folder = Path(".programs").absolute()
    folder.mkdir(exist_ok=True)
    for name, arguments in (("python", ""), ("camshaft", "-m camshaft")):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (folder / name).chmod(0o755)
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])


if __name__ == "__main__":
    main()
