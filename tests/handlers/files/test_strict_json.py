"""Documents: what is written is read, and what costs much or says nothing is refused."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers.files import strict_json as document
from camshaft.handlers.files.strict_json import DEEPEST, LONGEST, MOST, text_of, tree_of

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(TREES)
def test_every_tree_comes_back(tree):
    assert tree_of(text_of(tree).encode()) == tree


@given(st.binary())
def test_any_bytes_are_a_tree_or_a_value_error(content):
    with suppress(ValueError):
        tree_of(content)


def nested(depth, opening=b"[", closing=b"]"):
    return opening * depth + b"0" + closing * depth


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (nested(DEEPEST), "nests more than"),
        (nested(100_000), "nests more than"),
        (nested(100_000, b'{"a":', b"}"), "nests more than"),
        (b"[" + b"0," * MOST + b"0]", "has about .* values"),
        (b"1e400", "out of range"),
        (b"-1e400", "out of range"),
        (b"1" * (LONGEST + 1), "out of range"),
        (b"NaN", "is not JSON"),
        (b"-Infinity", "is not JSON"),
        (b'{"a": 1, "b": 2, "a": 3}', "has the key 'a' twice"),
        ("[]".encode("utf-16"), "is not text"),
        (b'"\xc3\xa9"', "is not text"),
        (b"", "is not JSON"),
        (b"[1, 2", "is not JSON"),
        (b"\x80\x04N.", "is not text"),
    ],
    ids=lambda value: f"{len(value)} of {str(value)[:20]}",
)
def test_what_is_beyond_a_limit_or_no_json_is_a_value_error(text, says):
    with pytest.raises(ValueError, match=says):
        tree_of(text)


def test_a_key_that_comes_twice_among_many_is_found():
    text = b"{" + b",".join(b'"%d":1' % number for number in range(300_000)) + b',"7":2}'
    with pytest.raises(ValueError, match="has the key '7' twice"):
        tree_of(text)


def test_a_text_that_is_too_large_is_not_even_looked_at(monkeypatch):
    monkeypatch.setattr(document, "LARGEST_TEXT", 10)
    with pytest.raises(ValueError, match="has 11 bytes, and at most 10 are taken"):
        tree_of(b"[1,2,3,4,5]")


@pytest.mark.parametrize(
    "tree",
    [json.loads(nested(DEEPEST)), [0] * (MOST + 2), float("nan")],
    ids=["deep", "many", "nan"],
)
def test_what_could_not_be_read_again_is_not_written(tree):
    with pytest.raises(ValueError, match="cannot be saved as JSON: .* in tensors"):
        text_of(tree)
