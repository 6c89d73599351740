"""Retention against a reference without cleverness, in ten thousand random histories."""

import math
import random

import pytest

from camshaft.handlers import best, every, latest
from camshaft.handlers.checkpoint.format import Manifest

KEEPS = [
    latest(1),
    latest(3),
    best(1, "score"),
    best(2, "score", mode="max"),
    latest(2) | best(1, "score", mode="max"),
    latest(1) | best(2, "score") | every(4),
    every(3) | best(1, "score"),
]
SCORES = [0.1, 0.5, 0.5, 0.9, math.nan, math.inf, None]


def wanted(keep, saved):
    """What the claims say, word by word."""
    last = {each.iteration: each for each in saved}  # written again: only the last one counts
    current = [each for each in saved if last[each.iteration] is each]
    numbers = {current[-1].number}
    for claim in keep.claims:
        if type(claim).__name__ == "Latest":
            numbers |= {each.number for each in current[-claim.count :]}
        if type(claim).__name__ == "Best":
            scored = [e for e in current if not math.isnan(e.metrics.get("score", math.nan))]
            sign = -1 if claim.mode == "max" else 1
            ranked = sorted(scored, key=lambda e: (sign * e.metrics["score"], e.number))
            numbers |= {each.number for each in ranked[: claim.count]}
        if type(claim).__name__ == "Every":
            for multiple in range(claim.count, 1 + max(e.iteration for e in current), claim.count):
                reached = [e for e in current if multiple <= e.iteration < multiple + claim.count]
                numbers |= {each.number for each in reached[:1]}
    return numbers


def live(keep, chance, steps):
    """Saves with and without scores, saves that fail or break, runs set back: all checked."""
    saved, broken, iteration, number = [], set(), 0, 0
    resumed = None
    for _ in range(steps):
        action = chance.choice(["save", "save", "save", "fail", "break", "resume"])
        if action == "save":
            iteration, number = iteration + chance.randint(0, 2), number + 1
            score = chance.choice(SCORES)
            metrics = {} if score is None else {"score": score}
            written = dict.fromkeys(metrics, number)
            saved.append(Manifest(number, iteration, metrics=metrics, written=written))
            good = [each for each in saved if each.number not in broken]
            kept = set(keep.kept(chance.sample(good, len(good))))
            assert kept == wanted(keep, good)
            assert number in kept
            stays = kept | broken | ({resumed} if resumed else set())
            saved = [each for each in saved if each.number in stays]
        elif action == "break" and len(saved) > 1:
            broken.add(chance.choice(saved).number)
        elif action == "resume" and (good := [e for e in saved if e.number not in broken]):
            choice = chance.choice(good)
            iteration, resumed = choice.iteration, choice.number
        good = [each.number for each in saved if each.number not in broken]
        assert resumed is None or resumed in {each.number for each in saved}
        if action == "save":
            assert good[-1] == number


@pytest.mark.parametrize("keep", KEEPS, ids=repr)
def test_what_is_kept_is_what_the_claims_say_in_every_history(keep):
    chance = random.Random(repr(keep))
    for _ in range(500):
        live(keep, chance, 12)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("keep", KEEPS, ids=repr)
def test_what_is_kept_is_what_the_claims_say_in_a_hundred_times_as_many(keep):
    chance = random.Random(repr(keep))
    for _ in range(150_000):
        live(keep, chance, 12)
