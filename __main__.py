"""`python -m camshaft`, also called `camshaft`: the commands, their arguments and exit codes."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NoReturn

from .engine import advice
from .handlers.checkpoint import NoCheckpointError, keep_of
from .handlers.files import printable
from .handlers.tools.checkpoints import export, inspect, prune, verify
from .handlers.tools.commands import diff, doctor, init, list_runs, tail
from .handlers.tools.configs import ConfigError, run_config
from .handlers.tools.prove import compare, prove
from .handlers.tools.report import NothingToReportError, watch, write_report

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
of compare and diff:
  0  no difference
  1  they differ
  2  there is nothing to compare, or it cannot be read
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command and return its exit code; an error is one line on standard error."""
    line = sys.argv[1:] if arguments is None else arguments
    parsed, rest = _parser(line).parse_known_args(line)
    given = vars(parsed)
    command: Callable[..., int] = given.pop("command")
    parser: Parser = given.pop("parser")
    # argparse gives all overrides to the place before the first option.
    if rest and ("overrides" not in given or any(each.startswith("-") for each in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if command is start:  # what fails is the user's script: it shows its traceback
        try:
            return start(given["path"], given["overrides"] + rest, given["max_batches"])
        except ConfigError as error:
            return _complain(error, 2)
    try:
        if "keep" in given:
            given["keep"] = keep_of(given["keep"])
    except ValueError as error:
        return _complain(error, 2)
    try:
        code = command(**given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        sys.stdout = None  # the reader has closed the pipe, as in `camshaft inspect runs | head -1`
        return 0
    except (NoCheckpointError, NothingToReportError) as error:
        return _complain(error, 2)
    except (ImportError, OSError, TypeError, ValueError) as error:
        return _complain(error, 2 if command is diff else 1)


def start(path: Path, overrides: Sequence[str], max_batches: int | None) -> int:
    """Start a run from a config, whose modules are found in the current directory, too."""
    sys.path.insert(0, os.getcwd())
    sys.argv[0] = str(path)  # the script, for the journal
    run_config(path, overrides, max_batches=max_batches)
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


def _parser(given: Sequence[str] = (), paths: object = None) -> Parser:
    """The parser of a command line.

    Args:
        given: The command line, for the errors.
        paths: How shtab completes paths.
    """
    parser = Parser(
        prog="camshaft",
        description="Start a run from a config; look at runs and their checkpoints.",
        epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="show it"
    )
    parser.given = given
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=Parser
    )

    def add(
        name: str,
        command: object,
        text: str,
        path: str = "",
        *,
        several: bool = False,
        facts: bool = True,
    ) -> Parser:
        added: Parser = commands.add_parser(
            name,
            description=text,
            help=text,
            epilog=CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(command=command, parser=added)
        added.given = given
        if several:
            added.add_argument("paths", metavar="DIR", type=Path, nargs="+", help=path)
        elif path:
            added.add_argument("path", metavar="DIR", type=Path, help=path)
        if facts:
            added.add_argument("--json", action="store_true", dest="as_json", help="for programs")
        return added

    directory = "a directory of checkpoints"
    either = f"{directory}, or one checkpoint"
    each = add("inspect", inspect, "Show each checkpoint in one line, or one in detail.", either)
    each.add_argument(
        "--verify", action="store_true", help="read every file, rather than compare sizes only"
    )
    add("verify", verify, "Read every file and compare it with its checksums.", either)
    each = add("prune", prune, "Drop the checkpoints that nothing claims.", directory)
    each.add_argument(
        "--keep",
        required=True,
        metavar="CLAIMS",
        help="""which to keep, as in a script: "latest(2) | best(1, 'val/loss')\"""",
    )
    each.add_argument("--dry-run", action="store_true", help="only say what would be dropped")
    each.add_argument(
        "--strip", action="store_true", help="strip them to their weights, rather than drop them"
    )
    text = "Write one .pt file for torch.load(weights_only=True), or what other programs read."
    each = add("export", export, text, either)
    each.add_argument(
        "file", metavar="FILE", type=Path, help="where to write: x.pt or x.safetensors"
    )
    each.add_argument("--object", metavar="NAME", help="only this object's state, such as model")
    text = "dcp: a new directory for torch.distributed.checkpoint.load, on any number of ranks"
    each.add_argument("--format", choices=["dcp"], help=text)
    text, run = "Write one HTML page about a run, or several side by side.", "what a run wrote to"
    each = add("report", write_report, text, run, several=True)
    each.add_argument(
        *("-o", "--output"),
        metavar="FILE",
        type=Path,
        default=Path("report.html"),
        help="where to write it (%(default)s)",
    )
    text = "Serve that page while the run goes on, to whoever has the address that it prints."
    each = add("watch", watch, text, run, several=True, facts=False)
    each.add_argument("--port", type=int, default=0, help="by default one that is free")
    text = "List the runs in a directory: how far, how good, and when they wrote last."
    add("runs", list_runs, text, "a directory of runs", several=True)
    text = "Show the last rows of a run and those that come, until it ends or until Ctrl-C."
    each = add("tail", tail, text, run)
    each.add_argument(
        *("-n", "--rows"),
        dest="count",
        type=_at_least(0),
        default=10,
        metavar="N",
        help="how many rows of each file to begin with (%(default)s)",
    )
    text = "Say in what two runs, checkpoints or YAML files differ: settings, and each tensor."
    each = add("diff", diff, text)
    each.add_argument("path", metavar="A", type=Path, help="a run, a checkpoint or a YAML file")
    each.add_argument("other", metavar="B", type=Path, help="another")
    text = "Say where two runs part: the first iteration, and the first thing in it that differs."
    each = add("compare", compare, text)
    each.add_argument("path", metavar="A", type=Path, help="what Fingerprints wrote in one run")
    each.add_argument("other", metavar="B", type=Path, help="and in the other")
    each.add_argument(
        "--rtol",
        type=float,
        default=-1.0,
        metavar="X",
        help="ignore relative differences up to this, as between machines",
    )
    each = add("run", start, CONFIG.partition("\n")[0], facts=False)
    each.description = CONFIG
    each.add_argument("path", metavar="CONFIG.yaml", type=Path, help="what it runs: it is code")
    each.add_argument(
        "overrides", metavar="KEY=VALUE", nargs="*", help="changes, in the grammar of Hydra's"
    )
    each.add_argument(
        "--max-batches",
        type=_at_least(1),
        metavar="N",
        help="for trials: end each pass after N batches",
    )
    text = "Kill a script at random moments, start it again, and compare it with a whole run."
    each = add("prove", prove, text)
    each.add_argument("--kills", type=int, default=5, metavar="N", help="how often (%(default)s)")
    each.add_argument(
        "--ranks", type=int, default=0, metavar="N", help="start it on so many ranks, by torchrun"
    )
    each.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the moments of the kills (%(default)s)"
    )
    each.add_argument("--keep", action="store_true", dest="keep_trials", help="keep the trials")
    each.add_argument(
        "command_line", metavar="COMMAND", nargs="+", help="after --, such as: python train.py"
    )
    text = "Show versions, devices and extras that are missing, and try to save to a directory."
    each = add("doctor", doctor, text)
    each.add_argument(
        *("path",), metavar="DIR", type=Path, nargs="?", default=Path(), help="by default this one"
    )
    text = "Write a new project: a script, a config, a test, a job of Slurm."
    add("init", init, text, "a directory that is new or empty", facts=False)
    text = "Print the script by which a shell completes this command line."
    each = add("completion", completion, text, facts=False)
    each.add_argument("shell", choices=["bash", "zsh", "tcsh"])
    for each in commands.choices.values():
        for action in each._actions:
            if action.type is Path:
                action.complete = paths  # type: ignore[attr-defined]
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    """What makes a count of an argument, for argparse."""

    def count(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
        return int(text)

    return count


if __name__ == "__main__":
    raise SystemExit(main())
