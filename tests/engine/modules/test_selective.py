"""Parts of a model that are computed again for the gradient, but for what is kept of them."""

from collections import Counter

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.data import DataLoader, TensorDataset

from camshaft import checkpoint_activations, supervised
from camshaft.handlers import Validate

aten = torch.ops.aten
WIDTH, BLOCKS = 8, 3


class Block(nn.Module):
    """Attention, statistics, random numbers, and a weight that other blocks have too."""

    def __init__(self, tied):
        super().__init__()
        self.norm, self.into, self.tied = nn.BatchNorm1d(2), nn.Linear(WIDTH, 3 * WIDTH), tied
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, *, scale=1.0):
        mask = torch.bernoulli(torch.full_like(x, 0.5))  # unlike dropout, not in place
        heads = self.into(self.norm(x)).unflatten(2, (3, 1, WIDTH)).transpose(1, 3).unbind(2)
        mixed = scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return x + scale * self.dropout(self.tied(gelu(mixed))) * mask


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        tied = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block(tied) for _ in range(BLOCKS))
        self.head = nn.Linear(2 * WIDTH, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.head(x.flatten(1))


def build(*patterns, keep=None):
    torch.manual_seed(0)
    model = Net()
    if patterns:
        checkpoint_activations(model, *patterns, keep=keep)
    return model


def products_and_norms(context, operation, *inputs, **options):
    if operation is aten.native_batch_norm.default:
        return True
    is_kept = operation in (aten.addmm.default, aten.mm.default)
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


RANDOM = [aten.bernoulli.default, aten.bernoulli_.float, aten.gelu.default]
KINDS = ["matmul", [aten.gelu.default], RANDOM, products_and_norms]


def trained(model, **options):
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(13, 2, WIDTH), torch.randint(3, (13,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    engine = supervised(model, optimizer, cross_entropy, **options)
    engine.add(Validate(DataLoader(data, 7)))
    engine.run(DataLoader(data, 5, shuffle=True), max_epochs=2)
    return model.state_dict()


def check_equal(found, expected):
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize("keep", KINDS, ids=["word", "list", "random", "policy"])
@pytest.mark.parametrize("options", [{}, {"precision": "bf16"}, {"accumulate": 2}], ids=str)
def test_training_is_the_same_to_the_last_bit(keep, options):
    check_equal(trained(build("blocks.*", keep=keep), **options), trained(build(), **options))


@pytest.mark.slow
def test_gradients_are_the_same_compiled():
    def computed(*patterns, **options):
        torch._dynamo.reset()
        model = build(*patterns, **options)
        made = torch.compile(model, backend="aot_eager", fullgraph=True)
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            made(torch.randn(5, 2, WIDTH)).square().sum().backward()
        return model.state_dict() | {name: each.grad for name, each in model.named_parameters()}

    expected = computed()
    for keep in ("matmul", products_and_norms):
        check_equal(computed("blocks.*", keep=keep), expected)


class Watch(TorchDispatchMode):
    """Counts operations, and knows of all that they make whether it is still in memory."""

    def __init__(self):
        super().__init__()
        self.calls, self.made = Counter(), {}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.calls[operation] += 1
        made = operation(*args, **(kwargs or {}))
        for each in tree_iter(made):
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                self.made[StorageWeakRef(storage)] = storage.nbytes()
        return made

    def bytes(self):
        return sum(size for storage, size in self.made.items() if not storage.expired())


def watched(model):
    with Watch() as watch:
        loss = model(torch.randn(50, 2, WIDTH)).sum()
        kept, before = watch.bytes(), watch.calls.copy()
        loss.backward()
    return kept, watch.calls - before, before


def test_products_are_not_computed_again_and_the_rest_is():
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    products = (aten.addmm.default, attention)
    kept, again, first = {}, {}, {}
    for name, model in {
        "plain": build(),
        "matmul": build("blocks.*", keep="matmul"),
        "all": build("blocks.*"),
    }.items():
        kept[name], again[name], first[name] = watched(model)
    assert [first["plain"][each] for each in products] == [2 * BLOCKS + 1, BLOCKS]
    assert [again["all"][each] for each in products] == [2 * BLOCKS, BLOCKS]
    assert [again["matmul"][each] for each in products] == [0, 0]
    assert again["matmul"][aten.gelu.default] == again["all"][aten.gelu.default] == BLOCKS
    assert kept["all"] < kept["matmul"] < kept["plain"]


@pytest.mark.slow
def test_compiled_products_are_not_computed_again_either():
    def products(**options):
        torch._dynamo.reset()
        graphs = []

        def see(graph, inputs):
            graphs.append(sum(node.target is aten.addmm.default for node in graph.graph.nodes))
            return make_boxed_func(graph.forward)

        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(3)))
        checkpoint_activations(model, "[012]", **options)
        backend = aot_autograd(
            fw_compiler=see, bw_compiler=see, partition_fn=min_cut_rematerialization_partition
        )
        torch.compile(model, backend=backend)(torch.randn(5, 4)).sum().backward()
        return graphs

    assert products() == [3, 3]
    assert products(keep="matmul") == [3, 0]


def test_the_last_call_for_a_part_counts():
    model = build("blocks.*")
    checkpoint_activations(model, "blocks.0", keep="matmul")
    assert watched(model)[1][aten.addmm.default] == 2 * (BLOCKS - 1)


@pytest.mark.parametrize(
    ("keep", "error", "said"),
    [
        ("matmuls", ValueError, "the only word is 'matmul'"),
        ([aten.mm], TypeError, r"overloads such as \[torch.ops.aten.mm.default\], or a policy; "),
        (aten.mm, TypeError, "needs 'matmul', a list of overloads"),
        (["mm"], TypeError, "'mm' is none of them"),
        (7, TypeError, "7 is none of them"),
    ],
)
def test_what_says_nothing_of_operations_is_an_error_and_changes_nothing(keep, error, said):
    model = build()
    with pytest.raises(error, match=said):
        checkpoint_activations(model, "blocks.*", keep=keep)
    assert "forward" not in vars(model.blocks[0])


def test_a_policy_without_an_answer_is_an_error():
    model = build("blocks.*", keep=lambda context, operation, *inputs, **options: None)
    with pytest.raises(TypeError, match=r"returned None for aten\.\S+; it has to return True, Fal"):
        model(torch.randn(5, 2, WIDTH))


def test_a_second_backward_pass_is_one_more_or_an_error_that_says_why():
    def gradients(model):
        torch.manual_seed(1)
        loss = model(torch.randn(5, 2, WIDTH)).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return {name: each.grad for name, each in model.named_parameters()}

    check_equal(gradients(build("blocks.*")), gradients(build()))
    model = build("blocks.*", keep="matmul")
    mean = model.blocks[2].norm.running_mean
    with pytest.raises(RuntimeError, match=r"serves one backward pass.*leave keep= out"):
        gradients(model)
    assert model.blocks[2].norm.running_mean is mean


def test_what_is_kept_and_then_changed_in_place_is_an_error_that_says_what_to_do():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)))
    checkpoint_activations(model, "0", keep="matmul")
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), cross_entropy)
    with pytest.raises(RuntimeError, match="has been mutated") as failed:
        engine.run([(torch.randn(3, 4), torch.tensor([0, 1, 2]))], max_epochs=1)
    assert any("write relu(x) for relu_(x)" in note for note in failed.value.__notes__)
