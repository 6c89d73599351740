"""The `.safetensors` format: headers that are written, and headers that are read."""

import json

import pytest
import torch
from safetensors.torch import save_file

from camshaft.handlers.checkpoint.format import DTYPES, TensorInfo, header_of, tensors_in

HERE = sorted(name for name in DTYPES if hasattr(torch, name.removeprefix("torch.")))


@pytest.mark.parametrize("name", HERE)
def test_every_type_has_its_name_in_torch_and_its_size(tmp_path, name):
    dtype = name.removeprefix("torch.")
    tensor = torch.zeros(2, 3).to(getattr(torch, dtype))
    save_file({"a": tensor, "b": tensor[0, 0].clone()}, tmp_path / "file.safetensors")
    found = tensors_in(tmp_path / "file.safetensors")
    size = tensor.element_size()
    assert found["b"] == TensorInfo(found["a"].dtype, ())
    assert found["b"].size == size
    assert (found["a"].shape, found["a"].numbers, found["a"].size) == ((2, 3), 6, 6 * size)
    # Of the types of 8 bits, safetensors keeps fewer letters than torch has.
    assert dtype.startswith(found["a"].dtype)


def test_a_file_of_another_format_is_a_value_error(tmp_path):
    (tmp_path / "file.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"file\.safetensors is not a \.safetensors file"):
        tensors_in(tmp_path / "file.safetensors")


def test_every_number_lies_at_a_multiple_of_its_width():
    tensors = {
        f"{name} {count}": torch.zeros(count, dtype=getattr(torch, name.removeprefix("torch.")))
        for name in HERE
        for count in (0, 1, 3)
    }
    header, places = header_of(tensors)
    assert len(header) % 64 == 0
    assert int.from_bytes(header[:8], "little") == len(header) - 8
    assert all(place % tensors[name].itemsize == 0 for name, place in places.items())
    assert json.loads(header[8:]).keys() == {"__metadata__", *tensors}
