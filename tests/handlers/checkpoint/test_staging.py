"""Staging: a copy that safetensors reads, that nothing changes, in memory that is used again."""

import json
import mmap

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load

from camshaft.handlers.checkpoint.format import DTYPES
from camshaft.handlers.checkpoint.save.snapshot import Snapshot, Staging

HERE = [name for name in DTYPES if hasattr(torch, name.removeprefix("torch."))]
FORMS = st.dictionaries(
    st.text(min_size=1, max_size=9),
    st.tuples(
        st.sampled_from(HERE), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 2**31)
    ),
    max_size=8,
)


def whole(payload):
    content = b"".join(payload.pieces())
    assert len(content) == payload.size
    return content


def of(**tensors):
    return Snapshot({"state.json": {"a": 1}}, {"model": tensors})


def staged(staging, **tensors):
    return whole(staging.copy(of(**tensors))["model.safetensors"])


def made(forms):
    """Tensors of any bits, so that each type has values of its own."""
    made = {}
    for name, (dtype_name, shape, seed) in forms.items():
        dtype = getattr(torch, dtype_name.removeprefix("torch."))
        size = torch.empty(shape, dtype=dtype).nbytes
        bits = torch.randint(256, (size,), generator=torch.Generator().manual_seed(seed))
        if dtype is torch.bool:
            bits = bits % 2
        made[name] = bits.to(torch.uint8).view(dtype).reshape(shape)
    return made


def bits(tensor):
    return tensor.dtype, tensor.shape, tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


@settings(deadline=None)
@given(FORMS)
def test_safetensors_reads_any_tensors_copied_or_streamed(forms):
    given_ = made(forms)
    snapshot = Snapshot({"state.json": {"a": 1}}, {"model": given_, "train": {}})
    copied, own = Staging().copy(snapshot), snapshot.streamed()
    assert {name: whole(each) for name, each in own.items()} == {
        name: whole(each) for name, each in copied.items()
    }
    back = load(whole(own["model.safetensors"]))
    assert {name: bits(each) for name, each in back.items()} == {
        name: bits(each) for name, each in given_.items()
    }
    assert load(whole(own["train.safetensors"])) == {}


def test_odd_views_are_written_as_what_they_show():
    views = {
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "slice": torch.arange(100.0)[10:20:3],
        "expanded": torch.ones(1).expand(4),
        "conjugated": torch.tensor([1 + 2j]).conj(),
        "negated": torch.tensor([1 + 2j]).conj().imag,
    }
    for files in (Staging().copy(of(**views)), of(**views).streamed()):
        back = load(whole(files["model.safetensors"]))
        assert all(torch.equal(back[name], each) for name, each in views.items())


def test_a_change_after_the_copy_is_not_in_it():
    tree, weight = {"losses": [1.0]}, torch.ones(2)
    files = Staging().copy(Snapshot({"state.json": tree}, {"model": {"weight": weight}}))
    tree["losses"].append(2.0)
    weight.zero_()
    assert json.loads(whole(files["state.json"])) == {"losses": [1.0]}
    for _ in range(2):  # a second attempt writes the same
        assert load(whole(files["model.safetensors"]))["weight"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ({"a": torch.zeros(2, 3)}, True),
        ({"b": torch.zeros(2, 3)}, False),
        ({"a": torch.zeros(3, 2)}, False),
        ({"a": torch.zeros(2, 3, dtype=torch.float16)}, False),
        ({"a": torch.zeros(2, 3), "b": torch.zeros(1)}, False),
        ({}, False),
    ],
)
def test_memory_is_used_again_while_names_shapes_and_types_stay(other, is_same):
    staging = Staging()
    (first,) = staging.copy(of(a=torch.ones(2, 3)))["model.safetensors"].pieces()
    (second,) = staging.copy(of(**other))["model.safetensors"].pieces()
    addresses = [torch.frombuffer(each, dtype=torch.uint8).data_ptr() for each in (first, second)]
    assert (addresses[0] == addresses[1]) == is_same
    back = load(bytes(second))
    assert back.keys() == other.keys()
    assert all(not each.any() for each in back.values())


def test_a_file_that_is_no_longer_there_is_dropped():
    staging = Staging()
    staging.copy(of(a=torch.ones(1)))
    assert staging.copy(Snapshot({"state.json": {}}, {})).keys() == {"state.json"}


def test_the_metadata_says_that_the_tensors_are_of_torch(tmp_path):
    (tmp_path / "file").write_bytes(staged(Staging(), a=torch.ones(2)))
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.gpu
def test_tensors_of_a_gpu_are_copied_before_they_change():
    weight = torch.ones(10_000_000, device="cuda")
    files = Staging().copy(of(weight=weight, bias=torch.ones(1)))
    weight.zero_()
    back = load(whole(files["model.safetensors"]))
    assert torch.equal(back["weight"], torch.ones(10_000_000))


def test_a_forked_process_that_drops_the_copy_loses_no_memory_of_its_own(in_child):
    """Memory that a child did not get would be a hole; what the child puts there would go too."""
    staging = Staging()
    staging.copy(of(weight=torch.ones(2**22)))
    (buffer,) = staging._buffers.values()
    place = torch.frombuffer(buffer.content, dtype=torch.uint8).data_ptr()
    buffers = [buffer]
    del staging, buffer

    def own_memory():
        taken = [mmap.mmap(-1, 2**24) for _ in range(8)]
        places = [torch.frombuffer(each, dtype=torch.uint8).data_ptr() for each in taken]
        buffers.clear()
        return [each[0] for each in taken], any(each <= place < each + 2**24 for each in places)

    said, status = in_child(own_memory)
    assert status == 0
    assert said == [[0] * 8, False]


def test_a_forked_process_shares_no_page_of_the_copy(in_child):
    """Else each later save would have to copy every page before it writes."""
    staging = Staging()
    (content,) = staging.copy(of(weight=torch.ones(2**20)))["model.safetensors"].pieces()
    said, status = in_child(lambda: [content[-1], content[-4]])
    assert (said, status) == ([0, 0], 0)
    assert bytes(content[-4:]) == torch.ones(1).numpy().tobytes()
