"""Files in memory: what safetensors reads from them, and nothing that changes afterwards."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load

from camshaft.handlers.checkpoint.format.codec import DTYPES
from camshaft.handlers.checkpoint.format.tensors import ALIGNMENT, NAMES, Image, layout, streamed

shapes = st.lists(st.integers(0, 4), max_size=3)
tensors = st.dictionaries(
    st.text(min_size=1, max_size=9),
    st.tuples(st.sampled_from(sorted(NAMES, key=str)), shapes, st.integers(0, 2**31)),
    max_size=8,
)


def made(forms):
    """Tensors of any bits, so that each type has values of its own."""
    made = {}
    for name, (dtype, shape, seed) in forms.items():
        size = torch.empty(shape, dtype=dtype).nbytes
        bits = torch.randint(256, (size,), generator=torch.Generator().manual_seed(seed))
        if dtype is torch.bool:
            bits = bits % 2
        made[name] = bits.to(torch.uint8).view(dtype).reshape(shape)
    return made


def bits(tensor):
    return tensor.dtype, tensor.shape, tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


def test_every_type_that_a_checkpoint_takes_has_its_name():
    here = {name for name in DTYPES if hasattr(torch, name.removeprefix("torch."))}
    assert set(map(str, NAMES)) == here


@settings(deadline=None)
@given(tensors)
def test_any_tensors_are_what_safetensors_reads(forms):
    given_ = made(forms)
    image = Image(given_)
    image.take(given_)
    for content in (image.content, b"".join(streamed(given_).pieces())):
        back = load(bytes(content))
        assert {name: bits(each) for name, each in back.items()} == {
            name: bits(each) for name, each in given_.items()
        }
    assert streamed(given_).size == len(image.content)


@given(tensors)
def test_every_number_lies_at_a_multiple_of_its_width(forms):
    given_ = made(forms)
    header, places = layout(given_)
    assert len(header) % ALIGNMENT == 0
    assert int.from_bytes(header[:8], "little") == len(header) - 8
    assert all(place % given_[name].itemsize == 0 for name, place in places.items())
    assert json.loads(header[8:]).keys() == {"__metadata__", *given_}


def test_odd_views_are_written_as_what_they_show():
    given_ = {
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "slice": torch.arange(100.0)[10:20:3],
        "expanded": torch.ones(1).expand(4),
        "conjugated": torch.tensor([1 + 2j]).conj(),
        "negated": torch.tensor([1 + 2j]).conj().imag,
    }
    image = Image(given_)
    image.take(given_)
    for content in (image.content, b"".join(streamed(given_).pieces())):
        back = load(bytes(content))
        assert all(torch.equal(back[name], given_[name]) for name in given_)


def test_what_was_taken_does_not_change_and_the_next_values_replace_it():
    weight = torch.ones(3)
    image = Image({"weight": weight})
    image.take({"weight": weight})
    weight.zero_()
    assert load(bytes(image.content))["weight"].tolist() == [1, 1, 1]
    content = image.content
    image.take({"weight": weight})
    assert load(bytes(content))["weight"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("other", "fits"),
    [
        ({"a": torch.zeros(2, 3)}, True),
        ({"b": torch.zeros(2, 3)}, False),
        ({"a": torch.zeros(3, 2)}, False),
        ({"a": torch.zeros(2, 3, dtype=torch.float16)}, False),
        ({"a": torch.zeros(2, 3), "b": torch.zeros(1)}, False),
        ({}, False),
    ],
)
def test_an_image_is_for_like_tensors_only(other, fits):
    assert Image({"a": torch.ones(2, 3)}).fits(other) == fits


def test_others_are_told_that_the_tensors_are_of_torch(tmp_path):
    image = Image({"a": torch.ones(2)})
    (tmp_path / "file").write_bytes(image.content)
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_of_a_gpu_are_copied_before_they_change():
    weight = torch.ones(10_000_000, device="cuda")
    image = Image({"weight": weight, "bias": torch.ones(1)})
    image.take({"weight": weight, "bias": torch.ones(1)})
    weight.zero_()
    assert torch.equal(load(bytes(image.content))["weight"], torch.ones(10_000_000))
