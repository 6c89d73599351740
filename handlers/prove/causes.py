"""What is likely the cause of a difference, and what to write against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .outcome import Difference
from .trial import Trial

SEEDS = {
    "random": "random.seed(0)",
    "torch": "torch.manual_seed(0)",
    "numpy.random": "numpy.random.seed(0)",
    "torch.cuda": "torch.manual_seed(0)",
}
MOST = 5
"""Lost objects that are named."""


def of_two_whole_runs(one: Trial, other: Trial, first: Difference) -> list[str]:
    """Why a script gives another result each time, the likeliest cause first."""
    a, b = one.reports, other.reports
    begins = [next((n for n in notes if n["event"] == "begin"), {}) for notes in (a, b)]
    later = next((n for n in a if n["event"] in ("save", "close")), {})
    found = []
    for name, seed in SEEDS.items():
        at_first = [each.get("generators", {}).get(name) for each in begins]
        used = later.get("generators", {}).get(name) != at_first[0]
        if at_first[0] != at_first[1] and (used or first.iteration == 0):
            found.append(
                f"no seed: {name} begins with other random numbers in each run; write {seed} "
                "before the data and the model are made"
            )
    weights = [each.get("objects", {}) for each in begins]
    if weights[0] != weights[1] and not found:
        found.append(
            "the objects differ before the first batch: seed every generator before the model is "
            "made, and make it from nothing that changes from run to run"
        )
    if "cuda" in begins[0].get("devices", ()) and not begins[0].get("deterministic"):
        found.append(
            "a nondeterministic kernel on the GPU: torch.use_deterministic_algorithms(True), and "
            "the environment variable CUBLAS_WORKSPACE_CONFIG=:4096:8"
        )
    if not found:
        found += [
            "something that no seed governs: the wall clock, os.urandom, a generator that is made "
            "without a seed, the order of a set of texts or of os.listdir",
            "a nondeterministic kernel: torch.use_deterministic_algorithms(True) tells which",
        ]
    return found


def of_a_resume(whole: Trial, other: Trial, steady: Trial) -> list[str]:
    """Why a resumed run is another one, the likeliest cause first."""
    lost = dict[str, str]()
    for name, kind, iteration in _lost(whole, other, steady):
        lost.setdefault(name, f"{name} ({kind}) was not what it had been at iteration {iteration}")
    found = []
    strong = {n: t for n, t in lost.items() if not t.startswith(_plain(n))} or lost
    if strong:
        told = "; ".join([*strong.values()][:MOST])
        rest = f"; and {len(strong) - MOST} more" if len(strong) > MOST else ""
        found.append(
            f"outside of the checkpoint, and lost by a kill: {told}{rest}. Put what has a "
            "state_dict into objects=, give the rest to state.recall(...), or give its owner a "
            "state_dict and put it into objects="
        )
    else:
        found += [
            "something outside of engine.objects that the run changes: a module, an optimizer, a "
            "generator, a counter or a cache",
            "a data set or a stream that does not give the same samples again",
            "the wall clock, such as an augmentation, a schedule or a limit by seconds",
        ]
    return found


def _plain(name: str) -> tuple[str, ...]:
    return tuple(f"{name} ({kind})" for kind in ("int", "float", "bool", "str", "NoneType"))


def _lost(whole: Trial, other: Trial, steady: Trial) -> Iterator[tuple[str, str, int]]:
    """What a process that has resumed had around the run that differs from the whole run's."""
    usual, again = _moments(whole), _moments(steady)
    for start in other.starts:
        begins = [n for n in start.notes if n["event"] == "begin" and n["iteration"] > 0]
        for begin in begins:
            key = (begin["directory"], begin["rank"], begin["iteration"])
            if key not in usual or key not in again:
                continue
            expected = usual[key].get("around", {})
            steadily = again[key].get("around", {})
            after = _next(start.notes, begin)
            for name, (kind, digest) in expected.items():
                now = begin.get("around", {}).get(name)
                if steadily.get(name) != [kind, digest] or now is None or now[1] == digest:
                    continue
                if after is not None and after.get("around", {}).get(name) == (
                    usual.get((after["directory"], after["rank"], after["iteration"]), {})
                    .get("around", {})
                    .get(name)
                ):
                    continue  # it has been made again by then
                yield name, kind, begin["iteration"]


def _moments(trial: Trial) -> dict[tuple[str, int, int], Mapping[str, Any]]:
    found = dict[tuple[str, int, int], Mapping[str, Any]]()
    for note in trial.reports:
        if note["event"] == "save":
            found[note["directory"], note["rank"], note["iteration"]] = note
    return found


def _next(notes: list[dict[str, Any]], begin: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = (n for n in notes if n["event"] == "save" and n["rank"] == begin["rank"])
    return next((n for n in found if n["iteration"] > begin["iteration"]), None)
