"""Batches of every shape, moved; streams on a CPU do nothing, but the same code runs."""

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass, field

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from camshaft import Transfer, supervised, to_device

Pair = namedtuple("Pair", ["input", "target"])


@dataclass(frozen=True, slots=True)
class Frozen:
    input: torch.Tensor
    name: str = "a"


@dataclass
class Counting:
    inputs: list[torch.Tensor]
    size: int = field(init=False)

    def __post_init__(self):
        self.size = len(self.inputs)


class Encoding(UserDict):
    """As tokenizers give them: a mapping that moves itself."""

    def to(self, device):
        return Encoding({name: value.to(device) for name, value in self.items()})


def some():
    return torch.ones(2)


BATCHES = {
    "tensor": (some(), lambda moved: [moved]),
    "pair": ((some(), some()), list),
    "list": ([some(), [some()]], lambda moved: [moved[0], moved[1][0]]),
    "dict": ({"a": some()}, lambda moved: [moved["a"]]),
    "ordered": (OrderedDict(a=some()), lambda moved: [moved["a"]]),
    "namedtuple": (Pair(some(), {"a": some()}), lambda moved: [moved.input, moved.target["a"]]),
    "dataclass": (Counting([some(), some()]), lambda moved: moved.inputs),
    "frozen": ([Frozen(some())], lambda moved: [moved[0].input]),
    "packed": (pack_sequence([some(), torch.ones(1)]), lambda moved: [moved.data]),
    "encoding": (Encoding(ids=some()), lambda moved: [moved["ids"]]),
}


@pytest.mark.parametrize(("batch", "tensors"), BATCHES.values(), ids=BATCHES)
def test_every_tensor_is_moved_and_the_rest_is_as_it_was(batch, tensors):
    moved = to_device(batch, "meta")
    assert type(moved) is type(batch)
    assert [each.device.type for each in tensors(moved)] == ["meta"] * len(tensors(batch))
    assert {each.device.type for each in tensors(batch)} == {"cpu"}


@pytest.mark.parametrize(("batch", "tensors"), BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("move", [lambda batch: to_device(batch, "cpu"), Transfer("cpu")])
def test_what_is_there_already_is_not_copied(batch, tensors, move):
    pairs = zip(tensors(move(batch)), tensors(batch), strict=True)
    assert all(moved.data_ptr() == own.data_ptr() for moved, own in pairs)


def test_what_is_no_tensor_is_left_as_it_is():
    marker = object()
    assert to_device(["a", 1, None, marker, Frozen], "meta") == ["a", 1, None, marker, Frozen]
    assert to_device(Counting([some()]), "meta").size == 1
    assert isinstance(to_device(BATCHES["packed"][0], "meta"), PackedSequence)


def test_a_device_without_streams_is_refused():
    with pytest.raises(ValueError, match="Transfer\\('meta'\\): needs a device with streams"):
        Transfer("meta")


def weights_on(device, place):
    torch.manual_seed(0)
    model = torch.nn.Linear(256, 256)
    data = [(torch.randn(64, 256), torch.randn(64, 256)) for _ in range(50)]
    if device == "cuda":
        data = [(input.pin_memory(), target.pin_memory()) for input, target in data]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_fn = torch.nn.functional.mse_loss
    engine = supervised(model, optimizer, loss_fn, device=place)
    engine.run(data, max_epochs=2)
    return model.weight.detach().cpu(), engine.evaluate(data).metrics["loss"].cpu()


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
        ),
    ],
)
def test_training_is_the_same_to_the_last_bit_with_overlapping_copies(device):
    weight, loss = weights_on(device, Transfer(device))
    expected, expected_loss = weights_on(device, device)
    assert torch.equal(weight, expected)
    assert torch.equal(loss, expected_loss)
