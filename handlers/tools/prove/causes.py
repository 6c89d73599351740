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
}
"""By generator: what seeds it; `torch.manual_seed` those of devices, too."""
MOST = 5
"""Lost objects that are named."""
PLAIN = ("int", "float", "bool", "str", "NoneType")
"""Kinds of values that are named if nothing else was lost: many of them follow from something."""


def of_two_whole_runs(one: Trial, other: Trial, first: Difference) -> list[str]:
    """Why a script gives another result each time, the likeliest cause first."""
    a, b = one.reports, other.reports
    begins = [next((n for n in notes if n["event"] == "begin"), {}) for notes in (a, b)]
    later = next((n for n in a if n["event"] in ("save", "close")), {})
    found = []
    for name in begins[0].get("generators", {}):
        seed = SEEDS.get(name, SEEDS["torch"])
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
    names = sorted({name for note in whole.reports for name in note.get("samplers", ())})
    samplers = [
        f"the order of {name}: a resume draws the batches of the epoch again and drops those that "
        "were used. What decides the order has to be its seed and its epoch (set_epoch), or a "
        f"{name}.state_dict() that gives what it had when the epoch began, put into objects="
        for name in names
    ]
    lost = dict[str, tuple[str, int]]()
    for name, kind, iteration in _lost(whole, other, steady):
        lost.setdefault(name, (kind, iteration))
    if not lost:
        return [
            *samplers,
            "something outside of engine.objects that the run changes: a module, an optimizer, a "
            "generator, a counter or a cache",
            "a data set or a stream that does not give the same samples again",
            "the wall clock, such as an augmentation, a schedule or a limit by seconds",
        ]
    likely = {name: each for name, each in lost.items() if each[0] not in PLAIN} or lost
    texts = [
        f"{name} ({kind}) was not what it had been at iteration {iteration}"
        for name, (kind, iteration) in likely.items()
    ]
    rest = f"; and {len(texts) - MOST} more" if len(texts) > MOST else ""
    return [
        *samplers,
        f"outside of the checkpoint, and lost by a kill: {'; '.join(texts[:MOST])}{rest}. Put what "
        "has a state_dict into objects=, give the rest to state.recall(...), or give its owner a "
        "state_dict and put it into objects=",
    ]


def _lost(whole: Trial, other: Trial, steady: Trial) -> Iterator[tuple[str, str, int]]:
    """Values around a resumed run that differ from those around both whole runs."""
    usual, again = _saved(whole), _saved(steady)
    for start in other.starts:
        for begin in (n for n in start.notes if n["event"] == "begin" and n["iteration"] > 0):
            later = (n for n in start.notes if n["event"] == "save" and n["rank"] == begin["rank"])
            after = next((n for n in later if n["iteration"] > begin["iteration"]), None)
            now, then = begin.get("around", {}), {} if after is None else after.get("around", {})
            steadily = again.get(_place(begin), {})
            usual_then = {} if after is None else usual.get(_place(after), {})
            for name, value in usual.get(_place(begin), {}).items():
                is_other = name in now and now[name][1] != value[1]
                # A value that is right again at the next save was not lost.
                is_made_again = after is not None and then.get(name) == usual_then.get(name)
                if is_other and steadily.get(name) == value and not is_made_again:
                    yield name, value[0], begin["iteration"]


def _saved(trial: Trial) -> dict[tuple[str, int, int], Mapping[str, Any]]:
    """The values around the run at each of its saves: names, with kinds and checksums."""
    saves = (each for each in trial.reports if each["event"] == "save")
    return {_place(each): each.get("around", {}) for each in saves}


def _place(note: Mapping[str, Any]) -> tuple[str, int, int]:
    return note["directory"], note["rank"], note["iteration"]
