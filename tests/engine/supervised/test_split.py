"""Batches of every shape, moved to the device and split into parts that count as a whole."""

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass, field

import pytest
import torch
from torch.nn.functional import mse_loss
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from camshaft import Events, Transfer, map_tensors, supervised, to_device


class Small(torch.nn.Module):
    """A model with dropout and running means that notes how many samples it is given at once."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.norm = torch.nn.BatchNorm1d(3, affine=False)
        self.seen = []

    def forward(self, x):
        self.seen.append(len(x))
        return self.layer(torch.nn.functional.dropout(self.norm(x), 0.25, self.training))


def build(model=None, **arguments):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1) if model is None else model
    model.double()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return supervised(model, optimizer, mse_loss, **arguments), model


def batches(sizes=(7, 7, 7, 4)):
    generator = torch.Generator().manual_seed(3)
    options = {"generator": generator, "dtype": torch.float64}
    return [(torch.randn(n, 3, **options), torch.randn(n, 1, **options)) for n in sizes]


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_gradients_loss_and_output_are_those_of_the_whole_batch(most, accumulate):
    def run(**arguments):
        engine, model = build(accumulate=accumulate, **arguments)
        seen = []
        engine.on(Events.ITERATION_COMPLETED)(
            lambda s: seen.append((s.iteration, s.step, s.output, s.metrics["loss"]))
        )
        engine.run(batches(), max_epochs=2)
        return model, seen

    (whole, rows), (split, others) = run(), run(split=most)
    for ours, theirs in zip(split.parameters(), whole.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-6)
    assert [row[:2] for row in others] == [row[:2] for row in rows]  # one iteration a batch
    for (*_, output, loss), (*_, expected, expected_loss) in zip(others, rows, strict=True):
        assert torch.allclose(output.prediction, expected.prediction, rtol=0, atol=1e-6)
        assert torch.equal(output.target, expected.target)
        assert torch.allclose(loss, expected_loss, rtol=0, atol=1e-6)
        assert torch.allclose(output.loss, loss)
        assert not output.prediction.requires_grad


def test_no_part_is_larger_than_asked_for_and_no_sample_is_lost():
    model = Small()
    engine, _ = build(model, split=3)
    engine.run(batches(), max_epochs=1)
    assert model.seen == [2, 2, 3, 2, 2, 3, 2, 2, 3, 2, 2]


def test_evaluation_goes_in_parts_too():
    (split, model), (whole, _) = build(Small(), split=2), build(Small())
    ours, theirs = (engine.evaluate(batches()).metrics["loss"] for engine in (split, whole))
    assert max(model.seen) == 2
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-6)


def test_tensors_inside_tuples_lists_and_dicts_are_cut_and_others_are_given_whole():
    seen = []

    class Nested(torch.nn.Module):
        def forward(self, **named):
            seen.append(named)
            return named["x"] * weight

    weight = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    pair = ({"x": torch.arange(5), "scale": torch.tensor(2.0), "name": "a"}, [torch.ones(5, 2)])
    engine = supervised(Nested(), optimizer, lambda p, t: p.mean() + t[0].mean(), split=2)
    output = engine.run([pair], max_epochs=1).output
    assert [each["x"].tolist() for each in seen] == [[0], [1, 2], [3, 4]]
    assert all(each["name"] == "a" and each["scale"] == 2.0 for each in seen)
    assert output.prediction.tolist() == [0, 1, 2, 3, 4]
    assert output.target[0].shape == (5, 2)


@pytest.mark.parametrize("pair", [(torch.ones(3), torch.ones(2)), ("a", "b")])
def test_a_batch_without_one_number_of_samples_is_an_error(pair):
    engine, _ = build(split=2)
    with pytest.raises(ValueError, match="give prepare_batch="):
        engine.run([pair], max_epochs=1)


@pytest.mark.parametrize("wrong", [0, -1, True, 2.5, "auto"])
def test_wrong_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match="needs a number of samples, from 1; find_batch_size"):
        build(split=wrong)


def test_a_part_without_a_loss_is_an_error():
    model = torch.nn.Linear(3, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, lambda prediction, target: None, split=2)
    with pytest.raises(ValueError, match="gave None for a part of a batch"):
        engine.run(batches(), max_epochs=1)


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


class Own(list):
    pass


BATCHES = {
    "tensor": (some(), lambda moved: [moved]),
    "pair": ((some(), some()), list),
    "list": ([some(), [some()]], lambda moved: [moved[0], moved[1][0]]),
    "dict": ({"a": some()}, lambda moved: [moved["a"]]),
    "ordered": (OrderedDict(a=some()), lambda moved: [moved["a"]]),
    "namedtuple": (Pair(some(), {"a": some()}), lambda moved: [moved.input, moved.target["a"]]),
    "dataclass": (Counting([some(), some()]), lambda moved: moved.inputs),
    "a list of one's own": (Own([some()]), list),
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


def test_what_else_is_to_be_done_with_each_tensor_of_a_batch_goes_by_a_function():
    batch = {"input": Pair(torch.ones(2), [Own([torch.zeros(3)])]), "name": "a", "none": None}
    changed = map_tensors(batch, torch.Tensor.double)
    assert changed["input"].input.dtype == changed["input"].target[0][0].dtype == torch.float64
    assert batch["input"].input.dtype == torch.float32
    assert (changed["name"], changed["none"]) == ("a", None)
    assert map_tensors(batch, len) == {"input": Pair(2, [Own([3])]), "name": "a", "none": None}
    same = Own([1, "a"])
    assert map_tensors([same], len)[0] is same


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


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_training_is_the_same_to_the_last_bit_with_overlapping_copies(device):
    weight, loss = weights_on(device, Transfer(device, least=0))
    expected, expected_loss = weights_on(device, device)
    assert torch.equal(weight, expected)
    assert torch.equal(loss, expected_loss)
