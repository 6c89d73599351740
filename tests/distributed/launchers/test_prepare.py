"""`ranks.prepare`: one script in one process, on ranks by DDP and on ranks by FSDP2."""

from pathlib import Path
from shutil import copytree

import pytest
import torch
from torch import nn

from camshaft import ranks
from camshaft.engine.ranks.prepare import device_of
from camshaft.handlers import checkpoints

SCRIPT = Path(__file__).with_name("train_anywhere.py")


def weights(directory):
    """The model's tensors in the newest checkpoint, whole."""
    return checkpoints(directory).latest().state_dict("model")


def bits(directory):
    """Each file of tensors in the newest checkpoint, and the logged rows."""
    files = sorted(checkpoints(directory).latest().path.glob("*.safetensors"))
    rows = (directory / "rows.jsonl").read_text()
    return {each.name: each.read_bytes() for each in files}, rows


def are_close(one, other):
    return one.keys() == other.keys() and all(
        torch.allclose(each, other[name], rtol=0, atol=1e-12) for name, each in one.items()
    )


@pytest.mark.quick(way=1)
@pytest.mark.parametrize("way", ["fsdp", "ddp"])
def test_the_run_is_that_of_the_model_wrapped_by_hand_from_the_weights_of_rank_0(
    processes, tmp_path, way
):
    first, second = tmp_path / "prepare", tmp_path / "hand"
    found = [processes.run_ranks(2, SCRIPT, each, way, each.name, 7)[0] for each in (first, second)]
    wrapper = {"ddp": "DistributedDataParallel", "fsdp": "FSDPNet"}[way]
    assert [each.stdout for each in found] == [f"{wrapper} 2 7\n"] * 2
    assert bits(first) == bits(second)


@pytest.mark.slow
def test_one_process_and_ranks_of_both_kinds_go_on_from_each_other(processes, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert processes.run(SCRIPT, whole, "fsdp", "prepare", 9).stdout == "Net 1 9\n"
    processes.run_ranks(2, SCRIPT, parts, "ddp", "prepare", 3)
    processes.run_ranks(2, SCRIPT, parts, "fsdp", "prepare", 6)
    copytree(parts, tmp_path / "ddp")
    processes.run(SCRIPT, parts, "fsdp", "prepare", 9)
    assert are_close(weights(parts), weights(whole))
    processes.run_ranks(2, SCRIPT, tmp_path / "ddp", "ddp", "prepare", 9)
    assert are_close(weights(tmp_path / "ddp"), weights(whole))


@pytest.mark.slow
def test_weights_and_moments_that_stay_on_the_host_are_the_same_bits_and_resumed(
    processes, tmp_path
):
    plain, offloaded = tmp_path / "plain", tmp_path / "offloaded"
    processes.run_ranks(2, SCRIPT, plain, "fsdp", "prepare", 3)
    processes.run_ranks(2, SCRIPT, offloaded, "offloaded", "prepare", 3)
    assert bits(plain) == bits(offloaded)
    processes.run_ranks(2, SCRIPT, plain, "offloaded", "prepare", 7)
    processes.run_ranks(2, SCRIPT, offloaded, "fsdp", "prepare", 7)
    assert bits(plain) == bits(offloaded)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fsdp", pytest.param("ddp", marks=pytest.mark.soak)])
def test_under_torchrun_itself_the_same_script_ends_without_a_warning(processes, tmp_path, way):
    assert processes.torchrun(SCRIPT, tmp_path / "torchrun", way, "prepare", 7).stderr == ""
    processes.run_ranks(2, SCRIPT, tmp_path / "ranks", way, "prepare", 7)
    assert bits(tmp_path / "torchrun") == bits(tmp_path / "ranks")


def test_a_world_of_one_gets_the_model_itself(processes, tmp_path):
    (result,) = processes.run_ranks(1, SCRIPT, tmp_path, "fsdp", "prepare", 2)
    assert (result.stdout, result.stderr) == ("Net 1 2\n", "")


def test_the_device_of_a_rank_is_the_one_with_its_number_on_its_machine():
    assert device_of(1, 8, "cuda:nccl") == "cuda:1"
    assert device_of(9, 8, "cpu:gloo,cuda:nccl") == "cuda:1"
    assert device_of(3, 1, "cuda:nccl") == "cuda:0"  # as where each rank sees its own alone
    assert device_of(0, 8, "cpu:mpi") == "cpu"  # a group that cannot send from CUDA
    assert device_of(0, 0, "cpu:gloo") == "cpu"


def blocks():
    model = nn.Module()
    model.blocks = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(2))
    model.head = nn.Linear(2, 2)
    model.forward = lambda x: x
    return model


def test_in_one_process_the_model_comes_back_on_its_device():
    model = blocks()
    assert ranks.prepare(model, shard="blocks.*", device="meta") is model
    assert {each.device.type for each in model.parameters()} == {"meta"}
    assert ranks.prepare(nn.Identity()).training


MISTAKES = {
    "meant no part by a name": ({"shard": "layers.*"}, r"it has blocks\.0 \(Sequential\), blocks"),
    "meant no part by a class": ({"shard": nn.Conv2d}, r"means no part of the model"),
    "meant no part by a function": ({"shard": lambda name, part: False}, r"means no part"),
    "meant a part without weights": ({"shard": nn.ReLU}, r"means no part of the model"),
    "meant a list of modules": ({"shard": "blocks"}, r"means no part of the model"),
    "gave a list of names": ({"shard": ["blocks.*"]}, "got a list; it takes names with"),
    "gave a part itself": ({"shard": nn.Linear(1, 1)}, "got a Linear; it takes names with"),
    "gave no name": ({"shard": True}, "got a bool; it takes names with"),
    "gave a name in a tuple that means nothing": ({"shard": ("layers.*",)}, "means no part"),
    "gave an option that DDP does not have": ({"mp_policy": None}, r"'mp_policy'"),
    "gave an option that FSDP2 does not have": (
        {"shard": "head", "find_unused_parameters": True},
        r"'find_unused_parameters'",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_told_in_one_process_as_well(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ranks.prepare(blocks(), **arguments)


def test_whoever_gives_no_model_learns_what_it_takes():
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters())
    with pytest.raises(TypeError, match="got a SGD; it takes a model alone"):
        ranks.prepare(optimizer)
    with pytest.raises(TypeError, match="got a type; it takes a model alone"):
        ranks.prepare(nn.Linear)


def test_tied_weights_are_not_separated():
    model = blocks()
    model.blocks[1][0].weight = model.head.weight
    with pytest.raises(ValueError, match=r"'blocks\.1\.0\.weight' and 'head\.weight' are one"):
        ranks.prepare(model, shard="blocks.*")
    ranks.prepare(model)
    assert model.blocks[1][0].weight is model.head.weight


def test_a_block_that_a_model_has_twice_is_one_part():
    model = blocks()
    model.blocks[1] = model.blocks[0]
    assert ranks.prepare(model, shard="blocks.*") is model


ON_RANKS = """
import os
import torch
import torch.distributed as dist
from torch import nn
from camshaft import loader, ranks, seed_everything, supervised

def refused(message, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except (ValueError, RuntimeError) as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)

def net(width=4):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 4))
"""


def run(processes, lines, count=2, **options):
    return processes.run_ranks(count, ON_RANKS + lines, **options)


def test_on_ranks_it_is_called_once_with_the_same_plain_model(processes):
    run(
        processes,
        """
with ranks.process_group():
    for shard in (None, "*"):
        made = ranks.prepare(net(), shard=shard)
        holds = "holds DTensor, FSDPModule" if shard else "holds DistributedDataParallel"
        refused(holds, ranks.prepare, made)
        refused(holds, ranks.prepare, made, shard="*")
        refused(holds, ranks.prepare, nn.Sequential(made))
    refused("unlike shapes", ranks.prepare, net(4 + ranks.rank()), shard="*")
    with ranks.alone():
        model = net()
        assert ranks.prepare(model) is model
    teacher = net().requires_grad_(False)  # of other weights on each rank
    assert ranks.prepare(teacher) is teacher
    assert len({repr(each) for each in ranks.gathered([*teacher.parameters()])}) == 1
    assert isinstance(ranks.prepare(nn.Identity()), nn.Identity)
    assert ranks.prepare(torch.compile(net())).module._orig_mod
    model = net()
    old = torch.optim.SGD(model.parameters(), lr=0.1)  # which DDP leaves as they are
    assert old.param_groups[0]["params"] == [*ranks.prepare(model).parameters()]
    model = ranks.prepare(model, shard="*")
    refused("updates no parameter", supervised, model, old, nn.functional.mse_loss)
    with torch.device("meta"):
        unmade = net()
    for shard in (None, "*"):
        refused("Cannot copy out of meta tensor", ranks.prepare, unmade, shard=shard)
""",
    )


def test_the_outer_one_of_two_parts_is_taken_and_each_part_is_one_unit(processes):
    run(
        processes,
        """
from torch.distributed.fsdp import FSDPModule

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Sequential(nn.Linear(2, 2))) for _ in "ab")
        self.head = nn.Linear(2, 2)

WAYS = {
    "*": ["blocks.0", "blocks.1", "head"],
    "blocks.*": ["blocks.0", "blocks.1"],
    nn.Sequential: ["blocks.0", "blocks.1"],
    (nn.Sequential, nn.Linear): ["blocks.0", "blocks.1", "head"],
    ("blocks.0", nn.Linear): ["blocks.0", "blocks.1.0.0", "head"],
    (lambda name, part: isinstance(part, nn.Linear)): ["blocks.0.0.0", "blocks.1.0.0", "head"],
}

class Twice(Net):
    def __init__(self):
        super().__init__()
        self.blocks[1] = self.blocks[0]

    def forward(self, x):
        return self.head(self.blocks[1](self.blocks[0](x)))

with ranks.process_group():
    for shard, names in WAYS.items():
        model = ranks.prepare(Net(), shard=shard)
        found = [name for name, each in model.named_modules() if isinstance(each, FSDPModule)]
        assert found == ["", *names], found
    model = ranks.prepare(Twice(), shard="blocks.*")
    model(torch.ones(1, 2)).sum().backward()
    assert model.blocks[1][0][0].weight.grad is not None
""",
    )


def test_hsdp_and_other_options_go_to_torch(processes):
    run(
        processes,
        """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy

with ranks.process_group():
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicas", "shards"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    model = ranks.prepare(net(), shard="*", mesh=mesh, mp_policy=policy)
    assert model[0].weight.device_mesh == mesh
    assert model(torch.ones(1, 4)).dtype == torch.bfloat16
    assert ranks.prepare(net(), find_unused_parameters=True).find_unused_parameters
""",
    )


EARLY = [
    "loader([1.0, 2.0], 2, training=True)",
    pytest.param("seed_everything(1, per_rank=True)", marks=pytest.mark.slow),
    pytest.param("ranks.rank_zero_only(lambda: None)()", marks=pytest.mark.slow),
    pytest.param("0.1 * ranks.world_size()", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("line", EARLY)
def test_what_was_made_for_one_process_before_the_ranks_met_is_told(processes, line):
    message = "was made for one process: call it first"
    run(processes, f"{line}\nrefused({message!r}, ranks.prepare, net())")
    run(processes, f"with ranks.process_group():\n    {line}\n    ranks.prepare(net())")
    run(processes, f"{line}\nranks.prepare(net())", count=1)


def test_a_process_group_of_the_script_is_used_as_it_is(processes):
    run(
        processes,
        """
dist.init_process_group("gloo")
loader([1.0, 2.0], 2, training=True)
model = ranks.prepare(net())
assert model.process_group is dist.group.WORLD
dist.destroy_process_group()
""",
    )


FAILING = """
model = ranks.prepare(net())
if ranks.rank() == 1:
    {}
model(torch.ones(1, 4)).sum().backward()
"""


@pytest.mark.slow
def test_a_rank_that_fails_says_why_and_ends_the_other_at_once(processes):
    def ended(line):
        first, second = run(processes, FAILING.format(line), code=None)
        assert first.returncode == 1
        assert "Connection closed by peer" in first.stderr
        return second.returncode, second.stderr

    code, said = ended("raise KeyError('so')")
    assert code == 1
    assert said.rstrip().endswith("KeyError: 'so'")
    assert ended("raise SystemExit(3)") == (3, "")
    assert ended("raise SystemExit") == (0, "")
