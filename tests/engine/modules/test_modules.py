"""Exchanged weights, wrappers of modules, and activations that are computed again."""

import copy
import random
from copy import deepcopy
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn import BatchNorm1d, DataParallel, Dropout, Linear, Module, ModuleList, Sequential
from torch.optim.swa_utils import AveragedModel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, checkpoint_activations, supervised, unwrap
from camshaft.engine.modules import (
    exchange,
    fsdp_groups,
    lend,
    norm,
    pairs_of,
    plain_names,
    twin,
    uncompiled,
    weights_of,
)
from camshaft.handlers import Checkpoint, Export, Validate, checkpoints


class Operations(TorchDispatchMode):
    """Counts what is dispatched."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **kwargs or {})


class Tied(nn.Module):
    """Two names for one weight, a buffer that is saved and one that is not."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.rand(3))
        self.register_buffer("mask", torch.rand(3), persistent=False)

    def forward(self, input):
        return self.second(self.first(input)) * self.scale


def pair(kind=Tied):
    torch.manual_seed(0)
    return kind(), kind()


def copies(module):
    return {name: tensor.detach().clone() for name, tensor in weights_of(module).items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def test_tied_weights_are_one_and_buffers_that_are_not_saved_count():
    assert list(weights_of(Tied())) == [
        *("first.weight", "first.bias", "second.bias"),
        *("scale", "mask"),
    ]


def test_what_is_lent_is_there_inside_and_all_is_back_afterwards_in_the_same_objects():
    lent = {}
    model, average = pair()
    before, its, ids = copies(model), copies(average), [id(p) for p in model.parameters()]
    with lend(model, average, lent):
        assert equal(copies(model), its)
    assert equal(copies(model), before)
    assert equal(copies(average), its)
    assert [id(p) for p in model.parameters()] == ids
    assert lent == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_meanwhile_everybodys_own_weights_are_known_under_all_their_names(dtype):
    lent = {}
    model, _ = pair(lambda: Tied().to(dtype))
    average = twin(model)
    for tensor in weights_of(average).values():
        tensor.data.add_(1e-4)  # less than a bfloat16 can tell
    before, its = copies(model), copies(average)
    with lend(model, average, lent):
        own = lent[model]
        assert set(own) >= model.state_dict().keys()
        assert all(torch.equal(own[name], before[name]) for name in before)
        held = lent[average] or weights_of(average)
        assert all(torch.equal(held[name], its[name]) for name in its)
    assert equal(copies(model), before)
    assert equal(copies(average), its)


def test_weights_of_16_bits_have_a_twin_of_32():
    made = twin(nn.Linear(2, 1).bfloat16())
    assert {p.dtype for p in made.parameters()} == {torch.float32}
    assert not any(p.requires_grad for p in made.parameters())
    assert twin(nn.Linear(2, 1).double()).weight.dtype == torch.float64


def test_a_graph_recorded_before_is_good_for_its_backward_pass():
    lent = {}
    model, average = pair(lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)))
    expected = copy.deepcopy(model)
    expected(torch.ones(1, 2)).sum().backward()
    loss = model(torch.ones(1, 2)).sum()
    with lend(model, average, lent):
        pass
    loss.backward()
    assert torch.equal(model[0].weight.grad, expected[0].weight.grad)


def test_weights_that_are_lent_are_not_lent_again():
    lent = {}
    (model, average), other = pair(), Tied()
    with (
        lend(model, average, lent),
        pytest.raises(RuntimeError, match="lent already"),
        lend(model, other, lent),
    ):
        pass
    with lend(model, other, lent):
        pass


def test_modules_of_another_kind_are_refused_by_the_names_that_differ():
    with pytest.raises(ValueError, match=r"Tied do not fit into a Linear.*first\.bias"):
        pairs_of(nn.Linear(2, 1), Tied())
    with pytest.raises(ValueError, match="do not fit into a Linear: weight"):
        exchange(nn.Linear(2, 1), nn.Linear(3, 1))


def test_an_engine_evaluates_with_the_weights_of_another_object():
    model, average = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    nn.init.constant_(average.weight, 2.0)
    engine = supervised(
        torch.nn.DataParallel(model),
        torch.optim.SGD(model.parameters(), 0.1),
        nn.functional.l1_loss,
    )
    engine.objects["ema"] = average
    data = [(torch.ones(3, 1), torch.zeros(3, 1))]
    assert engine.evaluate(data).metrics["loss"] == 1
    assert engine.evaluate(data, weights="ema").metrics["loss"] == 2
    assert engine.evaluate(data, weights={"model": "ema"}).metrics["loss"] == 2
    assert (model.weight.item(), average.weight.item()) == (1, 2)
    with engine.using("ema"):
        assert engine.evaluate(data).metrics["loss"] == 2
        assert torch.is_grad_enabled()


def test_who_has_no_such_object_is_told_which_modules_there_are():
    model = nn.Linear(1, 1)
    objects = {"net": model, "optimizer": torch.optim.SGD(model.parameters())}
    engine = Engine(lambda state, batch: None, objects=objects)
    with pytest.raises(ValueError, match=r"needs 'ema' to be a module .* those are 'net'"):
        engine.evaluate([1], weights={"net": "ema"})
    with pytest.raises(ValueError, match=r"needs 'model' .* write weights=\{'generator': 'ema'\}"):
        engine.evaluate([1], weights="net")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("background", [True, False])
def test_what_is_written_inside_holds_each_modules_own_weights(tmp_path, background, dtype):
    model = nn.Linear(1, 1, bias=False).to(dtype)
    average = twin(model)
    nn.init.constant_(model.weight, 1.0)
    nn.init.constant_(average.weight, 2.0001 if dtype == torch.bfloat16 else 2.0)
    written = average.weight.item()
    engine = Engine(lambda state, batch: None, objects={"model": model, "ema": average})
    never = Events.EPOCH_COMPLETED(at=99)
    checkpoint = Checkpoint(tmp_path / "run", when=never, background=background)
    export = Export(tmp_path / "ema", object="ema", when=never, background=background)
    engine.add(checkpoint, export)

    @engine.on(Events.ITERATION_COMPLETED)
    def write(state):
        with engine.using("ema"):
            assert model.weight.item() == 2  # in bfloat16 too
            for each in (checkpoint, export):
                state.save("inside", by=each)
                each.save(state)
            state.control.saves.clear()

    engine.run([1], max_iterations=1)
    first = checkpoints(tmp_path / "run")[0]
    assert first.state_dict("model")["weight"].item() == 1
    assert first.state_dict("ema")["weight"].item() == written
    assert checkpoints(tmp_path / "ema")[0].state_dict("ema")["weight"].item() == written


def compiled(module) -> Any:
    return torch.compile(module, backend="eager")


class Owner(torch.nn.Module):
    """Its own parts are called as wrappers call theirs."""

    def __init__(self, inner):
        super().__init__()
        self.module = inner


WRAPPERS = [DataParallel, compiled, AveragedModel, checkpoint_wrapper]
PAIRS = [
    pytest.param(outer, inner, id=f"{outer.__name__} of {inner.__name__}")
    for outer in WRAPPERS
    for inner in WRAPPERS
    if (outer, inner) != (compiled, compiled)  # torch makes a function of it
]


@pytest.mark.parametrize(("outer", "wrap"), PAIRS)
def test_unwrap_finds_the_module_inside_any_two_wrappers(outer, wrap):
    inner = Linear(2, 1)
    found = unwrap(outer(wrap(inner)))
    assert type(found) is Linear
    assert (found is inner) == (AveragedModel not in (outer, wrap))  # which holds a copy


def test_a_module_that_has_one_called_module_is_no_wrapper():
    owner = Owner(Linear(1, 1))
    assert unwrap(owner) is owner
    assert unwrap(DataParallel(owner)) is owner


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize(
    ("outer", "prefix"),
    [*((each, "") for each in WRAPPERS), (Owner, "module."), (Sequential, "0.")],
)
def test_names_are_plain_at_any_depth(outer, prefix, wrap):
    module = outer(Owner(wrap(Linear(2, 1))))
    found = plain_names(module, module.state_dict()).values()
    weights = {name for name in found if not name.endswith("n_averaged")}
    assert weights == {f"{prefix}module.weight", f"{prefix}module.bias"}


def test_only_the_wrapper_of_torch_compile_is_taken_off():
    model = torch.nn.Linear(1, 1)
    parallel = torch.nn.DataParallel(model)
    assert uncompiled(torch.compile(parallel, backend="eager")) is parallel
    assert uncompiled(parallel) is parallel
    assert uncompiled(model) is model


def test_all_groups_of_parameters_of_a_module_of_fsdp_are_found():
    """Parameters on several meshes have several; torch then refuses to name the only one."""

    class Sharded:
        _fsdp_param_groups = ("one mesh", "another")

        @property
        def _fsdp_param_group(self):
            raise AssertionError("Expected at most 1 param group")

        def _get_fsdp_state(self):
            return self

    assert fsdp_groups(Sharded()) == ["one mesh", "another"]
    assert fsdp_groups(Linear(1, 1)) == []


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


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        *(("blocks.*", {}), ("blocks.[01]", {}), ("*", {"precision": "bf16"})),
        *(("*.norm", {"accumulate": 2}), ("*.dropout", {})),
    ],
)
def test_training_is_the_same_to_the_last_bit(pattern, options):
    assert are_equal(trained(build(pattern), **options), trained(build(), **options))


@pytest.mark.slow
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


@pytest.mark.parametrize("pattern", [("blocks.*", "head"), torch.nn.Linear, 0])
def test_a_pattern_that_is_no_text_is_an_error(pattern):
    with pytest.raises(TypeError, match="needs names of parts, one by one"):
        checkpoint_activations(build(), pattern)


class Drawn(Module):
    """Scales its input by random numbers of four generators."""

    def __init__(self):
        super().__init__()
        self.inner = Linear(1, 1, bias=False)
        self.own, self.noise = numpy.random.default_rng(1), torch.Generator().manual_seed(2)

    def forward(self, x):
        drawn = random.random() + numpy.random.rand() + self.own.random()
        return self.inner(x) * drawn * torch.rand(1, generator=self.noise) * torch.rand(1)


def test_a_part_that_is_computed_again_draws_the_same_numbers_and_the_training_goes_on():
    def drawn_by(*patterns):
        random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
        model = Sequential(Drawn(), Drawn())
        checkpoint_activations(model, *patterns)
        found = []
        for _ in range(3):
            model.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            found += [random.random(), numpy.random.rand(), torch.rand(1).item()]
            found += [weight.grad.item() for weight in model.parameters()]
        return found

    assert drawn_by("*") == drawn_by()


def test_asked_for_twice_it_is_done_once():
    model = build("blocks.*")
    before = [block.forward.args for block in model.blocks]
    checkpoint_activations(model, "blocks.*")
    assert [block.forward.args for block in model.blocks] == before


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


def test_the_norm_of_forty_parts_takes_as_many_operations_as_that_of_four():
    """Each would be a launch on a GPU; one of the parts is empty, as on a rank without a share."""
    counts = []
    for number in (4, 40):
        parts = [torch.zeros(0), *torch.randn(number, 5)]
        with Operations() as operations:
            found = norm(parts)
        counts.append(operations.count)
        torch.testing.assert_close(found, torch.cat(parts).norm())
    assert counts[0] == counts[1]
