"""Activations computed again: the same run to the last bit, in less memory."""

from copy import deepcopy

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import BatchNorm1d, Dropout, Linear, Module, ModuleList
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

from camshaft import checkpoint_activations, supervised
from camshaft.handlers import Checkpoint, Validate


class Block(Module):
    """Everything that a second forward pass could get wrong."""

    def __init__(self):
        super().__init__()
        self.norm, self.frozen = BatchNorm1d(8), BatchNorm1d(8).eval()
        self.inner, self.dropout = Linear(8, 8), Dropout(0.5)

    def forward(self, input, *, scale=1.0):
        return input + scale * self.dropout(self.inner(self.frozen(self.norm(input))).relu())


class Net(Module):
    def __init__(self):
        super().__init__()
        self.stem = Linear(4, 8)
        self.blocks = ModuleList(Block() for _ in range(3))
        self.head = Linear(8, 3)

    def forward(self, input):
        hidden = self.stem(input)
        for block in self.blocks:
            hidden = block(hidden, scale=0.5)
        return self.head(hidden)


def build(*patterns):
    torch.manual_seed(0)
    model = Net()
    if patterns:
        checkpoint_activations(model, *patterns)
    return model


def trained(model, prepared=None, **options):
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(23, 4), torch.randint(3, (23,)))
    prepared = model if prepared is None else prepared
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    engine = supervised(prepared, optimizer, torch.nn.functional.cross_entropy, **options)
    engine.add(Validate(DataLoader(data, 7)))
    engine.run(DataLoader(data, 5, shuffle=True), max_epochs=2)
    return model.state_dict()


def are_equal(found, expected):
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"precision": "bf16"}])
@pytest.mark.parametrize("pattern", ["blocks.*", "blocks.[01]", "*", "*.norm", "*.dropout"])
def test_training_is_the_same_to_the_last_bit(pattern, options):
    assert are_equal(trained(build(pattern), **options), trained(build(), **options))


def test_training_is_the_same_compiled():
    def compiled(*patterns):
        model = build(*patterns)
        return trained(model, torch.compile(model, backend="aot_eager"))

    assert are_equal(compiled("blocks.*"), compiled())


def test_the_graph_keeps_less():
    def kept(model):
        sizes = []
        with saved_tensors_hooks(
            lambda each: sizes.append(each.numel()) or each, lambda each: each
        ):
            model(torch.randn(500, 4)).sum().backward()
        return sum(sizes)

    assert kept(build("blocks.*")) < kept(build()) / 3


def test_of_nested_parts_the_outer_one_counts_and_is_told():
    assert checkpoint_activations(build(), "blocks.*") == ["blocks.0", "blocks.1", "blocks.2"]
    assert checkpoint_activations(build(), "head", "*.1", "*.1.inner") == ["blocks.1", "head"]
    assert checkpoint_activations(build(), "*.inner", "blocks.2.*")[-3:] == [
        "blocks.2.frozen",
        "blocks.2.inner",
        "blocks.2.dropout",
    ]


@pytest.mark.parametrize("pattern", ["block.*", "blocks", ""])
def test_a_pattern_that_names_nothing_is_an_error_that_lists_what_there_is(pattern):
    with pytest.raises(ValueError, match="has such a name; the parts are stem, blocks"):
        checkpoint_activations(build(), pattern)


def test_asked_for_twice_it_is_done_once():
    model = build("blocks.*")
    before = [block.forward for block in model.blocks]
    checkpoint_activations(model, "blocks.*")
    assert [block.forward for block in model.blocks] == before


@pytest.mark.parametrize("copied", [deepcopy, lambda model: AveragedModel(model).module])
def test_a_copy_computes_with_its_own_weights(copied):
    model = build("blocks.*")
    twin = copied(model)
    torch.nn.init.zeros_(model.blocks[0].inner.weight)
    twin(torch.randn(5, 4)).sum().backward()
    assert twin.blocks[0].inner.weight.grad.abs().sum() > 0
    assert model.blocks[0].inner.weight.grad is None


def test_names_and_checkpoints_are_those_of_the_plain_model(tmp_path):
    def run(model, epochs):
        torch.manual_seed(1)
        data = TensorDataset(torch.randn(23, 4), torch.randint(3, (23,)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = supervised(model, optimizer, torch.nn.functional.cross_entropy)
        engine.add(Checkpoint(tmp_path / str(epochs), resume=True))
        engine.run(DataLoader(data, 5, shuffle=True), max_epochs=epochs)
        engine.run(DataLoader(data, 5, shuffle=True), max_epochs=3)
        return model.state_dict()

    assert build("*").state_dict().keys() == build().state_dict().keys()
    run(build("blocks.*"), 1)
    assert are_equal(run(build(), 1), run(build("*"), 2))
