"""Which batches are copied to a device on a stream of their own, decided without a device."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import pack_sequence
from torch.utils._python_dispatch import TorchDispatchMode

from camshaft import Transfer, supervised, to_device


class Pinned(torch.Tensor):
    """A tensor that says to be in pinned memory, for machines that have none."""

    def is_pinned(self):
        return True


@pytest.mark.parametrize(
    ("batch", "by_stream"),
    [
        (torch.zeros(2**18).as_subclass(Pinned), True),
        ({"input": [torch.zeros(2**18).as_subclass(Pinned)], "id": "a"}, True),
        (torch.zeros(2**18 - 1).as_subclass(Pinned), False),
        (torch.zeros(2**18), False),
        (pack_sequence([torch.zeros(2**18)]), False),
    ],
)
def test_only_large_tensors_in_pinned_memory_get_a_stream_of_their_own(batch, by_stream):
    transfer = Transfer("cpu")  # whose streams do nothing
    transfer(batch)
    assert ("stream" in vars(transfer)) == by_stream


@pytest.mark.parametrize("least", ["1MB", 1e6, True])
def test_the_least_size_is_a_whole_number_of_bytes(least):
    with pytest.raises(TypeError, match="needs a whole number of bytes"):
        Transfer("cpu", least=least)


@pytest.mark.slow
def test_on_a_gpu_transfer_is_the_default_and_elsewhere_it_is_not():
    def way_to(device):
        with FakeTensorMode():  # tensors of any device, without memory
            model = torch.nn.LayerNorm(2, device=device)
            engine = supervised(model, loss_fn=torch.nn.functional.mse_loss)
        return engine.process.__self__.move

    assert way_to("cpu") is None
    assert way_to("cuda:1").device == torch.device("cuda:1")
    assert not isinstance(way_to("meta"), Transfer)


@pytest.mark.slow
def test_a_copy_to_the_cpu_is_there_when_to_device_returns():
    asked = []

    class Copies(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            if function is torch.ops.aten._to_copy.default:
                asked.append((str(keywords["device"]), bool(keywords.get("non_blocking"))))
            return function(*arguments, **(keywords or {}))

    with FakeTensorMode(), Copies():
        there = torch.zeros(2, device="cuda:0")
        to_device((there,), "cpu")
        to_device((torch.zeros(2),), "cuda:0")
        Transfer("cpu")([there])
    assert asked == [("cpu", False), ("cuda:0", True), ("cpu", False)]
