"""Claims as text: what one writes is read back, and nothing else is, let alone run."""

from functools import reduce
from operator import or_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers.checkpoint import best, every, latest
from camshaft.handlers.checkpoint.format.notation import LONGEST, keep_of

COUNTS = st.integers(1, 10**9)
CLAIMS = st.one_of(
    st.builds(latest, COUNTS),
    st.builds(best, COUNTS, st.text(max_size=20), st.sampled_from(["min", "max"])),
    st.builds(every, COUNTS, st.sampled_from(["iterations", "steps", "epochs"])),
)


@given(st.lists(CLAIMS, min_size=1, max_size=5))
def test_what_repr_writes_is_read_back(claims):
    keep = reduce(or_, claims)
    assert keep_of(repr(keep)) == keep


def test_it_is_read_as_one_writes_it_in_a_script():
    text = """ latest() | best(1, "val/accuracy", mode="max") | (every(count=3, clock="epochs")) """
    expected = latest() | best(1, "val/accuracy", mode="max") | every(3, "epochs")
    assert keep_of(text) == expected


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
        "latest(1)" + " " * LONGEST + "|latest(2)",
    ],
    ids=lambda text: text[:40],
)
def test_everything_else_is_refused_and_nothing_runs(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"else than latest\(\.\.\.\), best"):
        keep_of(text)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("latest(0)", r"latest\(0\): needs a number from 1"),
        ("best(1, 'loss', 'low')", "needs 'min' or 'max'"),
        ("newest(2)", r"'newest\(2\)' is none of latest, best, every"),
    ],
)
def test_the_error_says_what_is_wrong(text, says):
    with pytest.raises(ValueError, match=says):
        keep_of(text)
