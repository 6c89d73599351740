"""The codec: everything comes back as it was, and what cannot is refused by name."""

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.handlers.checkpoint.format import Encoder, decode
from camshaft.handlers.common import (
    KINDS,
    ConfusionMatrix,
    Curve,
    Embedding,
    Histogram,
    Image,
    PRCurve,
    Text,
    content,
)
from camshaft.handlers.files import LONGEST

KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.binary()
PLAIN = KEYS | st.floats()
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float64, torch.complex64]

MEDIA = {
    "Text": Text("# words"),
    "Image": Image(torch.rand(3, 2, 2), "noise"),
    "Histogram": Histogram.of(torch.rand(9), bins=3),
    "PRCurve": PRCurve([1, 0], [0.9, 0.2]),
    "Curve": Curve([0.0, 1.0], [0.5, 1.0], axes=("a", "b"), labels=["c"]),
    "ConfusionMatrix": ConfusionMatrix([[1, 0], [2, 3]], labels=["no", "yes"]),
    "Embedding": Embedding(torch.rand(2, 3), ["a", "b"], torch.rand(2, 1, 4, 4)),
}


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    numbers = draw(st.lists(st.integers(0, 9), min_size=27, max_size=27))
    dtype = draw(st.sampled_from(DTYPES))
    return torch.tensor(numbers[: math.prod(shape)]).reshape(shape).to(dtype)


def nested(inner):
    return (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.sets(KEYS)
        | st.frozensets(KEYS)
        | st.dictionaries(KEYS | st.tuples(KEYS, KEYS), inner)
        | st.dictionaries(st.text(), inner)
        | st.dictionaries(KEYS, inner).map(OrderedDict)
        | st.dictionaries(st.text(), st.integers()).map(Counter)
        | st.lists(inner, max_size=3).map(lambda each: deque(each, maxlen=3))
        | st.dictionaries(KEYS, inner).map(lambda each: defaultdict(list, each))
    )


VALUES = st.recursive(PLAIN | tensors(), nested)


def there_and_back(value):
    encoder = Encoder()
    text = json.dumps(encoder.encode(value))
    return decode(json.loads(text), encoder.tensors)


def same(a, b):
    """Equal, and of equal types all the way down; NaN is itself, and 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, deque):
        return a.maxlen == b.maxlen and same(list(a), list(b))
    if isinstance(a, dict):
        keys = zip(a, b, strict=True)
        return all(same(*pair) for pair in keys) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(*pair) for pair in zip(a, b, strict=True))
    return a == b


@settings(max_examples=40)
@given(VALUES)
def test_every_value_comes_back_as_it_was(value):
    assert same(there_and_back(value), value)


@given(st.dictionaries(st.sampled_from(["!tuple", "!tensor", "!float", "!x", "x"]), PLAIN))
def test_keys_that_look_like_tags_are_only_keys(value):
    assert same(there_and_back(value), value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint32).reshape(2, 3),
        np.array(1.5),
        np.zeros((0, 2)),
        np.ones(3)[::-1],
    ],
    ids=["matrix", "no dimension", "empty", "reversed"],
)
def test_arrays_come_back_as_arrays(array):
    back = there_and_back(array)
    assert type(back) is np.ndarray
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert np.array_equal(back, array)


def test_numpys_numbers_come_back_as_numpys_numbers():
    back = there_and_back({"best": np.float64(0.25), "count": np.int32(3)})
    assert same(back, {"best": np.float64(0.25), "count": np.int32(3)})


def test_strings_and_whole_dicts_are_json_that_anybody_reads():
    value = {"epoch": 3, "names": ["a", "b"], "lr": 0.1, "left": None}
    assert Encoder().encode(value) == value


def test_tensors_are_named_after_their_place():
    encoder = Encoder()
    encoder.encode({"state": {0: {"momentum": torch.ones(1)}}, "seen": (torch.ones(2),)}, "adam")
    assert sorted(encoder.tensors) == ["adam.seen.0", "adam.state.0.momentum"]


class Named(torch.Tensor):
    pass


def test_a_number_of_another_class_of_tensors_is_a_number_and_more_are_refused():
    inputs = torch.ones(2).as_subclass(Named)
    encoder = Encoder()
    loss = decode(encoder.encode(inputs.sum(), "loss"), encoder.tensors)
    assert type(loss) is torch.Tensor
    assert loss == 2
    with pytest.raises(TypeError, match="inputs is a .*Named"):
        encoder.encode(inputs, "inputs")


def test_two_tensors_never_share_a_name():
    value = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}, 0: torch.ones(2), "0": torch.ones(3)}
    encoder = Encoder()
    back = decode(encoder.encode(value), encoder.tensors)
    assert len(encoder.tensors) == 4
    assert same(back, value)


class Own:
    def __repr__(self):
        return "Own()"


class OwnDict(dict):
    pass


@pytest.mark.parametrize(
    "value",
    [
        *(Own(), Own, OwnDict(), defaultdict(Own), 1j, bytearray(b"x"), range(3), len),
        *(
            torch.float32,
            torch.device("cpu"),
            torch.ones(2).to_sparse(),
            torch.ones(2, device="meta"),
        ),
        *(torch.ones(2, dtype=torch.complex128), np.array(["x"]), np.array([Own()])),
    ],
    ids=repr,
)
def test_anything_else_is_refused_with_the_path_to_it(value):
    with pytest.raises(TypeError, match=r"^ema\.history\.shadow\.1 is .*a checkpoint cannot hold"):
        Encoder("ema").encode({"history": {"shadow": [0, value]}})


@pytest.mark.parametrize("number", [10**LONGEST, -(10**LONGEST)], ids=["large", "small"])
def test_a_number_of_too_many_digits_in_a_list_is_refused_with_its_place(number):
    with pytest.raises(TypeError, match=r"numbers\.1 is an integer of more than"):
        Encoder().encode([1, number], "numbers")


def test_a_key_is_refused_like_a_value():
    with pytest.raises(TypeError, match=r"table\.<key> is a .*Own"):
        Encoder().encode({"table": {Own(): 1}})


@pytest.mark.parametrize(
    "encoded",
    [
        *({"!module": "os"}, {"!tuple": [], "x": 1}, {"!dict": 3}, {"!permuted": [3, [0]]}),
        {"!permuted": [{"!tensor": "a"}, [1, 1]]},
    ],
)
def test_what_the_encoder_never_makes_is_not_decoded(encoded):
    with pytest.raises((ValueError, TypeError)):
        decode(encoded, {"a": torch.ones(1, 1)})


@pytest.mark.parametrize("name", KINDS)
def test_what_is_shown_of_a_run_comes_back_as_it_was(name):
    medium = MEDIA[name]
    back = there_and_back({"shown": medium})["shown"]
    assert type(back) is type(medium)
    assert same(content(back), content(medium))


@pytest.mark.parametrize(
    "spoiled",
    [{}, {"kind": "Image"}, {"kind": "Popen", "args": "ls"}, {"kind": "Text", "path": "x"}, 3],
    ids=repr,
)
def test_what_is_no_medium_is_refused(spoiled):
    with pytest.raises(ValueError, match="!media"):
        decode({"!media": spoiled}, {})


def test_complex_numbers_of_double_precision_are_refused_with_what_a_file_can_hold():
    with pytest.raises(
        TypeError, match=r"w is a tensor of torch\.complex128.*view_as_real\("
    ) as error:
        Encoder("model").encode({"w": torch.zeros(2, dtype=torch.complex128)})
    assert "torch.complex64" in str(error.value)
