"""Configurations of all kinds become plain values."""

import enum
import json
from argparse import Namespace
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers.journal.plain import plain


class Kind(enum.Enum):
    SMALL = "s"


@dataclass
class Inner:
    sizes: tuple[int, ...] = (8, 8)
    kind: Kind = Kind.SMALL


@dataclass
class Outer:
    inner: Inner = field(default_factory=Inner)
    where: Path = Path("runs/one")


class Dumping:
    def model_dump(self):
        return {"lr": 0.1}


def test_whatever_has_names_becomes_a_dict():
    expected = {"inner": {"sizes": [8, 8], "kind": "SMALL"}, "where": "runs/one"}
    assert plain(Outer()) == expected
    assert plain(Namespace(a=1, b=None)) == {"a": 1, "b": None}
    assert plain(OrderedDict({1: {2.5}})) == {"1": [2.5]}
    assert plain(Dumping()) == {"lr": 0.1}


def test_what_has_no_plain_value_is_text():
    assert plain({"f": len, "n": float("nan"), "b": b"x", "c": Inner}) == {
        **{"f": "<built-in function len>", "n": "nan", "b": "b'x'", "c": repr(Inner)}
    }


def test_what_holds_itself_ends():
    endless = {}
    endless["again"] = endless
    assert '"..."' in json.dumps(plain(endless))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_an_integer_without_end_is_text():
    assert plain(10**400) == hex(10**400)
    assert float(plain(-(2**1023)))  # the largest that readers take for a number
    json.dumps(plain(10**9000))


@given(JSON)
def test_plain_values_stay_what_they_are(value):
    assert plain(value) == value


@given(st.recursive(st.floats() | st.binary() | st.complex_numbers(), st.lists, max_leaves=5))
def test_everything_can_be_written_as_json(value):
    json.dumps(plain(value), allow_nan=False)
