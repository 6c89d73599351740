"""Frozen weights: checksums that tell weights apart."""

import pytest
import torch
from torch import nn


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64, torch.bool])
def test_weights_of_each_type_are_told_apart(dtype):
    from camshaft.handlers.checkpoint.weights import checksums

    class Holder(nn.Module):
        def __init__(self, values):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(values).to(dtype), requires_grad=False)

    first, same = Holder([[0.0, 1.0], [1.0, 1.0]]), Holder([[0.0, 1.0], [1.0, 1.0]])
    assert checksums(first) == checksums(same)
    assert checksums(first) != checksums(Holder([[1.0, 0.0], [1.0, 1.0]]))


@pytest.mark.parametrize("pieces", [1, 256])
def test_a_checksum_counts_each_number_by_its_place_however_many_are_added_at_once(
    pieces, monkeypatch
):
    from camshaft.handlers.checkpoint import weights as frozen

    piece = frozen.AT_ONCE * pieces
    monkeypatch.setattr(frozen, "PIECE", piece)
    values = torch.arange(3 * frozen.AT_ONCE + 7, dtype=torch.int32) % 1000
    places = torch.arange(len(values))
    expected = (values.long() * (places % piece + places // piece + 1)).sum()
    assert frozen.checksum(values) == expected
