"""What a file of tensors says of itself is what was written to it."""

import pytest
import torch
from safetensors.torch import save_file

from camshaft.handlers.checkpoint.format.codec import DTYPES
from camshaft.handlers.checkpoint.format.header import Description, tensors_in

HERE = sorted(name for name in DTYPES if hasattr(torch, name.removeprefix("torch.")))


@pytest.mark.parametrize("name", HERE)
def test_every_type_has_its_name_in_torch_and_its_size(tmp_path, name):
    tensor = torch.zeros(2, 3).to(getattr(torch, name.removeprefix("torch.")))
    save_file({"a": tensor, "b": tensor[0, 0].clone()}, tmp_path / "file.safetensors")
    found = tensors_in(tmp_path / "file.safetensors")
    dtype = name.removeprefix("torch.")
    size = tensor.element_size()
    assert found["b"] == Description(found["a"].dtype, (), size)
    assert (found["a"].shape, found["a"].numbers, found["a"].size) == ((2, 3), 6, 6 * size)
    # Of the types of 8 bits, safetensors keeps fewer letters than torch has.
    assert dtype.startswith(found["a"].dtype)


def test_what_is_no_such_file_is_a_value_error(tmp_path):
    (tmp_path / "file.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"file\.safetensors is no file of tensors"):
        tensors_in(tmp_path / "file.safetensors")
