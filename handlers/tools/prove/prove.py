"""Whole runs, kills and a verdict."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .causes import of_a_resume, of_two_whole_runs
from .outcome import differences, outcome_of
from .proof import CODES, Proof, lines_of
from .trial import Ended, Start, Trial, UntriedError, as_interrupted, on_ranks, start_process

SLOWEST = 10
"""How many times as long as a whole run a start after a kill may take."""
MISSES = 5
"""Starts that may end before their kill, after which no more are tried."""
SHOWN = 5
"""Differences that are shown."""


def prove(
    command_line: Sequence[str],
    kills: int = 5,
    ranks: int = 0,
    seed: int = 0,
    as_json: bool = False,
    keep_trials: bool = False,
    start: Start = start_process,
) -> int:
    """Kill a script at random moments, and say if it ends as the run that was never interrupted."""
    proof = Proof()
    with temporary_place(keep_trials) as root, _bar(kills) as tick:
        proof.kept = str(root) if keep_trials else None
        try:
            if kills < 1:
                raise UntriedError(f"--kills {kills}: needs at least one")
            command = on_ranks(command_line, ranks) if ranks else list(command_line)
            Prover(Path.cwd().resolve(), root, command, start, proof, tick).run(kills, seed, ranks)
        except UntriedError as error:
            proof.verdict, proof.reason = "untried", str(error)
        except KeyboardInterrupt:
            print("camshaft: interrupted", file=sys.stderr)
            return 128 + signal.SIGINT
        except OSError as error:
            proof.verdict, proof.reason = "untried", f"{type(error).__name__}: {error}"
    print(json.dumps(asdict(proof), indent=2) if as_json else "\n".join(lines_of(proof)))
    return CODES[proof.verdict]


@dataclass
class Prover:
    """Makes the trials of one script."""

    home: Path
    root: Path
    command: Sequence[str]
    start: Start
    proof: Proof
    tick: Callable[[str], None]
    operations: dict[int, int] = field(default_factory=dict[int, int])
    """By rank: the operations on files in the longest save of a whole run."""

    first_save: int = 0
    """The iteration in which a whole run saves first."""

    def run(self, kills: int, seed: int, ranks: int) -> None:
        """Make two whole runs and the kills, and compare."""
        whole = self._whole("1")
        again = self._whole("2")
        one, two = outcome_of(whole), outcome_of(again)
        unsteady = differences(one, two)
        if changed := [each for each in unsteady if each.kind == "object"]:
            self.proof.verdict = "nondeterministic"
            self.proof.differences = changed[:SHOWN]
            self.proof.causes = of_two_whole_runs(whole, again, changed[0])
            return
        # If only random numbers differ, they come from a generator that the run does not use.
        named = [each for each in unsteady if each.kind in ("metric", "row", "file")]
        self.proof.not_compared = sorted({each.place for each in named})
        passed = {each.identity for each in unsteady}
        chance, number = random.Random(seed), 0
        while len(self.proof.kills) < kills:
            number += 1
            if number > kills + MISSES:
                break
            trial = self._killed(f"killed-{number}", kills, chance, max(ranks, 1))
            other = outcome_of(trial)
            found = [d for d in differences(one, other) if d.identity not in passed]
            files = [each.what for each in found if each.kind == "file"]
            self.proof.other_files = sorted({*self.proof.other_files, *files})
            if found := [d for d in found if d.kind not in ("file", "random numbers")]:
                self.proof.verdict = "differs"
                self.proof.differences = found[:SHOWN]
                self.proof.causes = of_a_resume(whole, trial, again)
                return
        if not self.proof.kills:
            raise UntriedError(
                "it ended before each kill: give it more iterations, or let it save more often"
            )
        if not any(kill["resumed_at"] for kill in self.proof.kills):
            raise UntriedError(
                "no kill left a checkpoint, so it began anew each time: let it save more often, "
                "such as when=Events.ITERATION_COMPLETED(every=100), or ask for more --kills"
            )
        self.proof.verdict = "proven"

    def _whole(self, name: str) -> Trial:
        """One run without a kill, from which the rest is judged."""
        trial = self._trial(f"whole-{name}")
        ended = trial.start()
        if ended.code != 0:
            raise UntriedError(
                f"the script fails without any kill, with exit code {ended.code}"
                + trial.last_words()
            )
        self._check(ended.notes)
        saved = [note["reached"] for note in ended.notes if note["event"] == "save"]
        self.first_save = min(saved, default=0)
        closed = [note for note in ended.notes if note["event"] == "close"]
        for note in ended.notes:
            done = max(note.get("operations", 1), self.operations.get(note["rank"], 1))
            self.operations[note["rank"]] = done
        self.proof.whole_seconds = ended.seconds
        self.proof.iterations = max(note["reached"] for note in closed)
        self.proof.directories = sorted({note["directory"] for note in closed})
        self.tick(f"whole run {name}: {self.proof.iterations} iterations")
        return trial

    def _check(self, notes: Sequence[dict[str, Any]]) -> None:
        """Refuse what cannot be killed and compared."""
        for note in notes:
            if note.get("problem"):
                raise UntriedError(f"what the run holds cannot be compared: {note['problem']}")
        begun = [note for note in notes if note["event"] == "begin"]
        if not begun:
            raise UntriedError(
                "no Checkpoint was seen: add Checkpoint(directory, resume=True) to the engine; "
                "if it has one, start Python without -E, -I and -S"
            )
        if any(note.get("start_over") for note in begun):
            raise UntriedError(
                "the script does not resume: its Checkpoint has start_over=True, which begins "
                "anew at each start; write resume=True in its place"
            )
        if not any(note.get("resume") for note in begun):
            raise UntriedError(
                "the script does not resume: write Checkpoint(..., resume=True), so that it goes "
                "on from its newest checkpoint when it is started again"
            )
        for note in notes:
            if note.get("interrupted"):
                raise UntriedError(
                    f"the run was interrupted by itself ({note['reason']}), so it has no end to "
                    "compare: try the script with fewer epochs and without a limit of time"
                )

    def _killed(self, name: str, kills: int, chance: random.Random, ranks: int) -> Trial:
        """A run that is killed, again and again until its end or until there were enough kills."""
        trial, reached, last = self._trial(name), 0, self.proof.iterations
        while (left := kills - len(self.proof.kills)) and reached < last:
            number, rank = len(self.proof.kills), chance.randrange(ranks)
            ahead = min(1.0, chance.random() * 2 / (left + 1)) * (last - reached - 1)
            iteration = reached + 1 + int(ahead)
            if number or kills < 3:  # one of several may come before there is a checkpoint
                iteration = min(max(iteration, self.first_save + 1), last)
            kill = {
                "kind": "save" if number % 2 or kills == 1 else "moment",
                "iteration": iteration,
                "operation": chance.randint(1, self.operations.get(rank, 1)),
                "delay": chance.choice([0.0, chance.uniform(0, 0.01)]),
                "rank": rank,
                "all": ranks == 1 or number % 3 != 2,
            }
            killed = self._start(trial, kill).killed
            if killed is None:
                return trial
            reached = killed["iteration"]
            self.proof.kills.append(
                {
                    "iteration": reached,
                    "rank": None if kill["all"] else rank,
                    "in_save": killed["in_save"],
                    "resumed_at": 0,
                }
            )
            self.tick(f"killed at iteration {reached}" + ", in a save" * killed["in_save"])
        self._start(trial, None)
        return trial

    def _start(self, trial: Trial, kill: dict[str, Any] | None) -> Ended:
        ended = trial.start(kill, 60 + SLOWEST * self.proof.whole_seconds)
        if ended.killed is None and ended.code != 0:
            raise UntriedError(
                f"started again after a kill, the script fails with exit code {ended.code}"
                + trial.last_words()
            )
        if len(trial.starts) > 1:  # it comes after a kill, which is the last one so far
            begun = [note["iteration"] for note in ended.notes if note["event"] == "begin"]
            self.proof.kills[-1]["resumed_at"] = max(begun, default=0)
        return ended

    def _trial(self, name: str) -> Trial:
        return Trial(self.home, self.root / name, self.command, self.start)


@contextmanager
def temporary_place(keep: bool = False) -> Generator[Path, None, None]:
    """A temporary directory, removed also after Ctrl-C and SIGTERM."""
    root = Path(tempfile.mkdtemp(prefix="camshaft-")).resolve()
    before = None
    with suppress(ValueError):  # not the main thread
        before = signal.signal(signal.SIGTERM, as_interrupted)
    try:
        yield root
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _bar(kills: int) -> Generator[Callable[[str], None], None, None]:
    """A progress bar of runs, if standard error is a terminal."""
    from tqdm import tqdm

    bar: Any = tqdm(
        total=kills + 2, desc="prove", file=sys.stderr, disable=None, leave=False, unit="run"
    )
    with bar:

        def tick(text: str) -> None:
            bar.update()
            bar.set_postfix_str(text)

        yield tick
