"""Retention: claims against brute force, their corners, and claims as text, of which none runs."""

from functools import reduce
from operator import or_
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers import every
from camshaft.handlers.checkpoint.format import Keep, Manifest, best, latest

MAKE: dict[str, Any] = {"latest": latest, "best": best, "every": every}


def kept(keep, scores):
    saved = [Manifest(n, n, metrics={"score": score}) for n, score in enumerate(scores, 1)]
    return sorted(keep.kept(saved))


def test_one_measurement_counts_once_however_often_it_was_saved():
    written = [(0.1, 1), (0.1, 1), (0.1, 1), (0.2, 2), (0.3, 3)]
    saved = [
        Manifest(n, n, metrics={"score": score}, written={"score": write})
        for n, (score, write) in enumerate(written, 1)
    ]
    assert best(2, "score").kept(saved).keys() == {1, 4, 5}


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
