"""`python -m camshaft`, also called `camshaft`: the commands, their arguments and exit codes."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, NoReturn

from .engine import advice
from .handlers import checkpoint
from .handlers.files import printable
from .handlers.tools import checkpoints, commands, configs, prove, replay, report, steering

CODES = """\
exit codes:
  0  it worked, and what was verified is whole
  1  something is broken or could not be done; see the error output
  2  there is no checkpoint or nothing to report, or the command line is wrong
of run:
  0  the run has ended, or had ended before
  1  it failed; see its traceback
  2  the config is wrong, so nothing has run
  128 + the signal, where StopOnSignal stopped it
of prove:
  0  proven: a run that is killed and started again ends as the run of no kill
  1  runs differ
  2  the script could not be tried
of replay:
  0  the iteration was computed again, and what the run wrote of it is the same
  1  it differs
  2  the iteration could not be computed again
of compare and diff:
  0  no difference
  1  they differ
  2  there is nothing to compare, or it cannot be read
of set:
  0  the run has taken it up, or will when it goes on
  1  the name or the value is refused; nothing is changed
  2  there is no run that can be steered
of doctor:
  0  a run can save to the directory
  1  it cannot
"""
CONFIG = """\
Start, or go on with, the run that a YAML file describes.

keys of the file:
  directory  where the journal and resolved.yaml go
  engine     a call that gives an Engine, such as camshaft.supervised
  run        the arguments of engine.run: data, max_epochs, ...
  seed       of all random numbers, if there is one
  handlers   a list or a dict of calls
  others     calls and values for these to refer to, such as ${model}

A call has a _target_, what to call, and its arguments; it is made once, wherever ${model} stands.
Example: camshaft run config.yaml lr=0.01 '~handlers.stop' --max-batches 3
"""
KEEP = """which to keep, as in a script: "latest(2) | best(1, 'val/loss')\""""
KEPT = "keep what this module returns, such as 'blocks.3' or 'blocks.*'; may be given again"
DCP = "dcp: a new directory for torch.distributed.checkpoint.load, on any number of ranks"
AT = "the iteration after which it counts, or +N from the one at hand (the next commit point)"
RTOL = "ignore relative differences up to this, as between machines"


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command and return its exit code; an error is one line on standard error."""
    line = sys.argv[1:] if arguments is None else arguments
    if sys.stdout is None:  # closed, as by cron or `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):  # names may have letters that its encoding lacks
        with suppress(OSError):
            sys.stdout.reconfigure(errors="backslashreplace")
    parsed, rest = _parser(line).parse_known_args(line)
    given = vars(parsed)
    command: Callable[..., int] = given.pop("command")()
    parser: Parser = given.pop("parser")
    # argparse gives all overrides to the place before the first option.
    if rest and ("overrides" not in given or any(each.startswith("-") for each in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if command is start:  # what fails is the user's script: it shows its traceback
        try:
            return start(given["path"], given["overrides"] + rest, given["max_batches"])
        except configs.ConfigError as error:
            return _complain(error, 2)
    try:
        if command is checkpoints.prune:
            given["keep"] = checkpoint.Keep.of(given["keep"])
    except ValueError as error:
        return _complain(error, 2)
    try:
        code = command(**given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        sys.stdout = None  # the reader has closed the pipe, as in `camshaft inspect runs | head -1`
        return 0
    except (checkpoints.NoCheckpointError, report.NothingToReportError) as error:
        return _complain(error, 2)
    except (ImportError, OSError, OverflowError, TypeError, ValueError) as error:
        return _complain(error, 2 if command is commands.diff else 1)


def start(path: Path, overrides: Sequence[str], max_batches: int | None) -> int:
    """Start a run from a config, whose modules are found in the current directory, too."""
    sys.path.insert(0, os.getcwd())
    sys.argv[0] = str(path)  # the script, for the journal
    configs.run_config(path, overrides, max_batches=max_batches)
    return 0


def completion(shell: Literal["bash", "zsh", "tcsh"]) -> int:
    """Print the script by which a shell completes the commands, options and paths."""
    try:
        import shtab
    except ModuleNotFoundError as error:
        text = 'completion needs shtab: pip install "camshaft[completion]"'
        raise ModuleNotFoundError(text) from error
    print(shtab.complete(_parser([], shtab.FILE), shell=shell))
    return 0


def _complain(error: Exception, code: int) -> int:
    print("camshaft:", printable(" ".join(str(error).split("\n"))), file=sys.stderr)
    return code


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # slow, and for this alone

        print("camshaft", version("camshaft"))
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the command or the option that was probably meant."""

    given: Sequence[str] = ()
    """The whole command line."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with code 2."""
        wrong, _, choices = message.partition(" (choose from ")
        if choices and (word := re.search(r"invalid choice: '(.*)'", wrong)):
            message += advice(word[1], re.findall(r"[\w.-]+", choices), {})
        for each in self.given[: self.given.index("--") if "--" in self.given else None]:
            option = each.partition("=")[0]
            known = [*self._option_string_actions]
            if option[:1] == "-" and not any(one.startswith(option) for one in known):
                message += advice(option, known, {})
        super().error(message)


def _at_least(least: int, kind: type[int | float] = int) -> Callable[[str], float]:
    """What makes a number of an argument, for argparse."""

    def number(text: str) -> float:
        with suppress(ValueError):
            if (found := kind(text)) >= least:  # NaN is not
                return found
        name = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"{text!r} is not a {name} of {least} or more")

    return number


def _place(text: str) -> str:
    if re.fullmatch(r"\+?\d{1,15}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no iteration, such as 5000 or +100")
    return text


def _of(names: str, text: str, **how: Any) -> tuple[list[str], dict[str, Any]]:
    """An argument of a command, as argparse takes it: a flag, unless more is said of it."""
    return names.split(), {"help": text, **(how or {"action": "store_true"})}


_FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}
_PATH, _RUNS = _FILE | {"metavar": "DIR"}, _FILE | {"metavar": "DIR", "nargs": "+"}
_A, _B = _FILE | {"metavar": "A"}, _FILE | {"metavar": "B"}
_NUMBER: dict[str, Any] = {"type": int, "metavar": "N"}
_COUNT = _NUMBER | {"type": _at_least(1)}
_JSON = _of("--json", "for programs", action="store_true", dest="as_json")
_EITHER = _of("path", "a directory of checkpoints, or one checkpoint", **_PATH)
_RANKS = _of("--ranks", "start it on so many ranks, by torchrun", default=0, **_COUNT)
_OF_RUNS = _of("paths", "what a run wrote to", **_RUNS)

COMMANDS: dict[str, tuple[Any, ...]] = {
    "inspect": (
        lambda: checkpoints.inspect,
        "Show each checkpoint in one line, or one in detail.",
        *(_EITHER, _JSON),
        _of("--verify", "read every file, rather than compare sizes only"),
    ),
    "verify": (
        lambda: checkpoints.verify,
        "Read every file and compare it with its checksums.",
        _EITHER,
        _JSON,
    ),
    "prune": (
        lambda: checkpoints.prune,
        "Drop the checkpoints that nothing claims.",
        *(_of("path", "a directory of checkpoints", **_PATH), _JSON),
        _of("--keep", KEEP, required=True, metavar="CLAIMS"),
        _of("--dry-run", "only say what would be dropped"),
        _of("--strip", "strip them to their weights, rather than drop them"),
    ),
    "export": (
        lambda: checkpoints.export,
        "Write one .pt file for torch.load(weights_only=True), or what other programs read.",
        *(_EITHER, _JSON, _of("file", "where to write: x.pt or x.safetensors", **_FILE)),
        _of("--object", "only this object's state, such as model", metavar="NAME"),
        _of("--format", DCP, choices=["dcp"]),
    ),
    "report": (
        lambda: report.write_report,
        "Write one HTML page about a run, or several side by side.",
        *(_OF_RUNS, _JSON),
        _of("-o --output", "where to write it (%(default)s)", default=Path("report.html"), **_FILE),
    ),
    "watch": (
        lambda: report.watch,
        "Serve that page while the run goes on, to whoever has the address that it prints.",
        *(_OF_RUNS, _of("--port", "by default one that is free", default=0, type=int)),
    ),
    "runs": (
        lambda: commands.list_runs,
        "List the runs in a directory: how far, how good, and when they wrote last.",
        *(_of("paths", "a directory of runs", **_RUNS), _JSON),
    ),
    "tail": (
        lambda: commands.tail,
        "Show the last rows of a run and those that come, until it ends or until Ctrl-C.",
        *(_of("path", "what a run wrote to", **_PATH), _JSON),
        _of(
            *("-n --rows", "how many rows of each file to begin with (%(default)s)"),
            **_NUMBER | {"dest": "count", "type": _at_least(0), "default": 10},
        ),
    ),
    "diff": (
        lambda: commands.diff,
        "Say in what two runs, checkpoints or YAML files differ: settings, and each tensor.",
        *(_JSON, _of("path", "a run, a checkpoint or a YAML file", **_A)),
        _of("other", "another", **_B),
    ),
    "compare": (
        lambda: prove.compare,
        "Say where two runs part: the first iteration, and the first thing in it that differs.",
        *(_JSON, _of("path", "what Fingerprints wrote in one run", **_A)),
        _of("other", "and in the other", **_B),
        _of("--rtol", RTOL, type=_at_least(0, float), default=-1.0, metavar="X"),
    ),
    "run": (
        lambda: start,
        CONFIG,
        _of("path", "what it runs: it is code", type=Path, metavar="CONFIG.yaml"),
        _of(
            *("overrides", "changes, in the grammar of Hydra's"),
            **_FILE | {"type": str, "metavar": "KEY=VALUE", "nargs": "*", "default": []},
        ),
        _of("--max-batches", "for trials: end each pass after N batches", **_COUNT),
    ),
    "prove": (
        lambda: prove.prove,
        "Kill a script at random moments, start it again, and compare it with a whole run.",
        *(_JSON, _of("--kills", "how often (%(default)s)", default=5, **_NUMBER)),
        _RANKS,
        _of("--seed", "of the moments of the kills (%(default)s)", default=0, **_NUMBER),
        _of("--keep", "keep the trials", action="store_true", dest="keep_trials"),
        _of("command_line", "after --, such as: python train.py", metavar="COMMAND", nargs="+"),
    ),
    "replay": (
        lambda: replay.replay_iteration,
        "Compute one iteration of a run again, from the nearest checkpoint, in a copy.",
        *(_of("path", "the directory of the run's checkpoints", **_PATH), _JSON),
        _of("--iteration", "which one", required=True, **_COUNT),
        _RANKS,
        _of("--pdb", "stop in a debugger at the first line of the process function"),
        _of("--keep", KEPT, action="append", default=[], metavar="NAME"),
        _of("command_line", "after --, such as: python train.py", metavar="COMMAND", nargs="+"),
    ),
    "set": (
        lambda: steering.set_values,
        "Change a run while it runs: its rate, its limits, its accumulation; save, or stop it.",
        *(_of("path", "what a run with Steering writes to", **_PATH), _JSON),
        _of("settings", "such as optimizer.lr=1e-4, save or stop", metavar="NAME=VALUE", nargs="+"),
        _of("--at", AT, type=_place, metavar="N"),
    ),
    "doctor": (
        lambda: commands.doctor,
        "Show versions, devices and extras that are missing, and try to save to a directory.",
        *(_JSON, _of("path", "by default this one", nargs="?", default=Path(), **_PATH)),
    ),
    "init": (
        lambda: commands.init,
        "Write a new project: a script, a config, a test, a job of Slurm.",
        _of("path", "a directory that is new or empty", **_PATH),
    ),
    "completion": (
        lambda: completion,
        "Print the script by which a shell completes this command line.",
        _of("shell", "", choices=["bash", "zsh", "tcsh"]),
    ),
}
"""By name: what imports the function and gives it, what it does, and its arguments."""


def _codes_of(command: str) -> str:
    """The exit codes of one command: its own, or the usual ones."""
    usual, *others = re.split(r"^of (.*):\n", CODES, flags=re.MULTILINE)
    pairs = zip(others[::2], others[1::2], strict=True)
    own = (f"exit codes:\n{codes}" for names, codes in pairs if command in names.split(" and "))
    return next(own, usual)


def _parser(given: Sequence[str] = (), paths: object = None) -> Parser:
    """The parser of a command line, which errors quote; `paths` is how shtab completes paths."""
    look: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    text = "Start a run from a config; look at runs and their checkpoints."
    parser = Parser(prog="camshaft", description=text, epilog=CODES, **look)
    version: dict[str, Any] = {"action": _Version, "nargs": 0, "default": argparse.SUPPRESS}
    parser.add_argument("--version", help="show it", **version)
    parser.given = given
    named = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=Parser
    )
    for name, (command, text, *arguments) in COMMANDS.items():
        first, _, _ = text.partition("\n")
        look["epilog"] = _codes_of(name)
        added: Parser = named.add_parser(name, description=text, help=first, **look)
        added.set_defaults(command=command, parser=added)
        added.given = given
        for names, how in arguments:
            action = added.add_argument(*names, **how)
            if action.type is Path:
                action.complete = paths  # type: ignore[attr-defined]
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
