"""Retention: claims against brute force, their corners, and claims as text, of which none runs."""

import math
from functools import reduce
from operator import or_
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers import every
from camshaft.handlers.checkpoint.format import Keep, Manifest, best, latest

SCORES = st.sampled_from([0.1, 0.5, 0.9, math.nan, math.inf, -math.inf, None])
COUNTS = st.integers(1, 4)
CLAIMS = st.lists(
    st.one_of(
        st.tuples(st.just("latest"), COUNTS),
        st.tuples(
            st.just("best"), COUNTS, st.sampled_from(["a", "b"]), st.sampled_from(["min", "max"])
        ),
        st.tuples(st.just("every"), COUNTS, st.sampled_from(["iterations", "steps", "epochs"])),
    ),
    min_size=1,
    max_size=3,
)
MAKE: dict[str, Any] = {"latest": latest, "best": best, "every": every}


@st.composite
def saves(draw):
    """Some saves of a run that is sometimes set back, in the order of writing."""
    found, iteration = [], 0
    for number in range(1, draw(st.integers(1, 8)) + 1):
        iteration = max(0, iteration + draw(st.integers(-3, 4)))
        metrics = {name: score for name in "ab" if (score := draw(SCORES)) is not None}
        found.append(Manifest(number, iteration, iteration // 2, iteration // 3, metrics=metrics))
    return found


def is_kept(each, saved, claims):
    """The same rules once more, as slowly and plainly as can be."""
    if any(o.iteration == each.iteration and o.number > each.number for o in saved):
        return False
    rivals = [
        o
        for o in saved
        if not any(p.iteration == o.iteration and p.number > o.number for p in saved)
    ]
    newer = [o for o in rivals if o.number > each.number]
    if not newer:
        return True
    for kind, count, *rest in claims:
        if kind == "latest" and len(newer) < count:
            return True
        if kind == "every":
            clock = {"iterations": "iteration", "steps": "step", "epochs": "epoch"}[rest[0]]
            reached = getattr(each, clock) // count
            before = [o for o in rivals if o.number < each.number]
            if reached and all(getattr(o, clock) // count != reached for o in before):
                return True
        if kind == "best":
            metric, mode = rest
            score = each.metrics.get(metric, math.nan)
            better = 0
            for o in rivals:
                other = o.metrics.get(metric, math.nan)
                wins = other < score if mode == "min" else other > score
                better += wins or (other == score and o.number < each.number)
            if not math.isnan(score) and better < count:
                return True
    return False


@given(saves(), CLAIMS)
def test_what_is_kept_is_what_the_claims_say(saved, claims):
    keep = MAKE[claims[0][0]](*claims[0][1:])
    for kind, *arguments in claims[1:]:
        keep |= MAKE[kind](*arguments)
    assert keep.kept(saved).keys() == {
        each.number for each in saved if is_kept(each, saved, claims)
    }


@given(saves(), CLAIMS)
def test_dropping_after_each_save_never_drops_the_newest_nor_the_best_of_a_forward_run(
    saved, claims
):
    keep, disk = best(1, "a", mode="max"), []
    saved.sort(key=lambda each: each.iteration)
    unique = {each.iteration: each for each in saved}.values()
    for number, save in enumerate(unique, 1):
        newest = Manifest(number, save.iteration, metrics=save.metrics)
        disk.append(newest)
        disk = [one for one in disk if one.number in keep.kept(disk)]
        assert newest in disk
    scores = [each.metrics.get("a", math.nan) for each in unique]
    highest = max((score for score in scores if not math.isnan(score)), default=None)
    assert highest is None or highest in [each.metrics.get("a") for each in disk]


def kept(keep, scores):
    saved = [Manifest(n, n, metrics={"score": score}) for n, score in enumerate(scores, 1)]
    return sorted(keep.kept(saved))


def test_nan_is_never_best():
    keep = best(1, "score", mode="max")
    assert kept(keep, [math.nan, 0.5, math.nan, 0.9, 0.1]) == [4, 5]
    assert kept(keep, [math.nan, math.nan]) == [2]


def test_of_equal_ones_the_earlier_stays():
    assert kept(best(1, "score"), [0.5, 0.2, 0.2, 0.2, 0.3]) == [2, 5]


def test_one_measurement_counts_once_however_often_it_was_saved():
    written = [(0.1, 1), (0.1, 1), (0.1, 1), (0.2, 2), (0.3, 3)]
    saved = [
        Manifest(n, n, metrics={"score": score}, written={"score": write})
        for n, (score, write) in enumerate(written, 1)
    ]
    assert best(2, "score").kept(saved).keys() == {1, 4, 5}


def test_every_keeps_the_first_at_or_after_each_multiple():
    saved = [
        Manifest(n, iteration) for n, iteration in enumerate([4, 8, 12, 16, 20, 24, 28, 31], 1)
    ]
    assert every(10).kept(saved).keys() == {3, 5, 8}
    assert every(4).kept(saved).keys() == set(range(1, 8)) | {8}


def test_the_newest_stays_whatever_the_claims_say():
    assert kept(every(100), [0.1, 0.2, 0.3]) == [3]


def test_a_run_set_back_keeps_what_it_wrote_last():
    saved = [Manifest(1, 10), Manifest(2, 20), Manifest(3, 30), Manifest(4, 20), Manifest(5, 25)]
    assert latest(2).kept(saved).keys() == {4, 5}


def test_claims_are_values():
    assert latest(2) | best(1, "loss") == best(1, "loss") | latest(2)
    assert len({every(3), every(3), every(3, "epochs")}) == 2
    assert repr(every(5, "epochs") | latest(1)) == "every(5, 'epochs') | latest(1)"


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: latest(0), ValueError, r"latest\(0\): needs a number from 1"),
        (lambda: MAKE["every"](2.5), TypeError, r"every\(2.5\): needs a whole number"),
        (lambda: best(True, "loss"), TypeError, "whole number"),
        (lambda: MAKE["best"](1, 3), TypeError, "needs the name of a metric"),
        (lambda: MAKE["best"](1, "loss", mode="most"), ValueError, "needs 'min' or 'max'"),
        (
            lambda: MAKE["every"](1, "hours"),
            ValueError,
            "needs one of 'iterations', 'steps', 'epochs'",
        ),
    ],
)
def test_a_claim_that_cannot_be_meant_is_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_each_that_is_kept_knows_the_claims_that_keep_it():
    scores = [0.1, 0.5, 0.9, 0.7]
    saved = [Manifest(n, n, metrics={"score": score}) for n, score in enumerate(scores, 1)]
    claims = latest(2) | best(1, "score") | every(3)
    assert claims.kept(saved) == claims.claimed(saved)
    assert claims.kept(saved) == {
        1: ["best(1, 'score', mode='min')"],
        3: ["every(3, 'iterations')", "latest(2)"],
        4: ["latest(2)"],
    }
    assert best(1, "score").kept(saved)[4] == []  # the newest needs no claim
    assert 4 not in best(1, "score").claimed(saved)


WRITTEN = st.one_of(
    st.builds(latest, st.integers(1, 10**9)),
    st.builds(best, st.integers(1, 10**9), st.text(max_size=20), st.sampled_from(["min", "max"])),
    st.builds(every, st.integers(1, 10**9), st.sampled_from(["iterations", "steps", "epochs"])),
)


@given(st.lists(WRITTEN, min_size=1, max_size=5))
def test_claims_that_repr_writes_are_read_back(claims):
    keep = reduce(or_, claims)
    assert Keep.of(repr(keep)) == keep


def test_claims_are_read_as_one_writes_them_in_a_script():
    text = """ latest() | best(1, "val/accuracy", mode="max") | (every(count=3, clock="epochs")) """
    expected = latest() | best(1, "val/accuracy", mode="max") | every(3, "epochs")
    assert Keep.of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "latest", "2", "latest(2) & latest(3)", "latest(2); latest(3)", "newest(2)"),
        *("__import__('os').mkdir('ran')", "latest(__import__('os').mkdir('ran'))"),
        *("best(1, 'loss', mode=open('ran', 'w'))", "latest(**{'count': 2})", "latest(*[2])"),
        *("(lambda: latest(2))()", "keep.latest(2)", "latest(2) | [latest(3)][0]"),
        *("latest(2)(3)", "latest(count=2, more=3)", "every(1, clock=[])", "latest(2)\0"),
        *("(" * 9000 + ")" * 900, "-" * 9000 + "1", "latest(" * 1400, "latest(1)|" * 900 + "1"),
        *("latest(" + "-" * 9000 + "1)", "latest(" + "9" * 9000 + ")", "[" * 9999),
        "latest(1)" + " " * 10_000 + "|latest(2)",
    ],
    ids=lambda text: text[:40],
)
def test_a_text_that_is_no_claim_is_refused_and_nothing_runs(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"else than latest\(\.\.\.\), best"):
        Keep.of(text)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("latest(0)", r"latest\(0\): needs a number from 1"),
        ("best(1, 'loss', 'low')", "needs 'min' or 'max'"),
        ("newest(2)", r"'newest\(2\)' is none of latest, best, every"),
    ],
)
def test_the_error_says_what_is_wrong_with_a_text(text, says):
    with pytest.raises(ValueError, match=says):
        Keep.of(text)
