"""Floating-point operations."""

import pytest
import torch

from camshaft.handlers.measurements.flops import Counter, peak_of_device


def test_a_forward_and_backward_pass_is_counted():
    layer, inputs = torch.nn.Linear(8, 4, bias=False), torch.randn(16, 8)
    counter = Counter()
    layer(inputs).sum().backward()
    assert counter.stop() == 2 * 2 * 16 * 8 * 4  # forward, and the gradient of the weights


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H200", 989e12),
        ("Tesla V100-SXM2-16GB", 125e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("Tesla T4", 65e12),
        ("NVIDIA GeForce GTX 1080", None),
        ("", None),
    ],
)
def test_the_peak_is_known_of_common_devices(name, peak):
    assert peak_of_device(name) == peak
