"""Run on four ranks: what a sharded model cannot do is an error before the first iteration."""

import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path.append(str(Path(__file__).parents[1]))
import checks
from models import Net, adamw, batches, by_hand, check_equal, dealt, sharded

from camshaft import Engine, State, Update, loader, ranks, supervised
from camshaft.handlers import Average, find_batch_size, predict

PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def refused(net, message, optimizer=None):
    """A run that has read no batch says so, on all ranks; in both kinds of engines."""
    for make in (by_hand, lambda *given: supervised(*given[:2], mse_loss)):
        seen = []
        with pytest.raises(ValueError, match=message):
            train(make, net, optimizer or adamw(net), map(seen.append, batches()))
        assert len(seen) == 0


def train(make, net, optimizer, data):
    make(net, optimizer, 1).run(data, max_epochs=1)


def two_dimensions():
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))


def other_wrappers_are_refused():
    flat = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"), use_orig_params=True)
    refused(flat, r"a FullyShardedDataParallel cannot be trained here.*fully_shard\(model\)")

    class DeepSpeedEngine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = Net()

        def forward(self, x):
            return self.module(x)

    refused(DeepSpeedEngine(), "a DeepSpeedEngine cannot be trained here: it makes backward passes")


def an_optimizer_of_the_parameters_before_is_refused():
    net = Net()
    optimizer = adamw(net)
    refused(sharded("fsdp", net), "the optimizer updates no parameter of th", optimizer)


def nobody_has_said_that_ranks_read_the_same():
    ranks.data_parallel(two_dimensions())  # all
    mesh = two_dimensions()
    net = parallelize_module(Net(), mesh["tensor"], PLAN)
    refused(net, r"nothing averages its gradients over the 4 ranks.*ranks.data_parallel\(mesh")
    part = fully_shard(Net(), mesh=mesh["data"])
    refused(part, r"is on the ranks (0, 2|1, 3), and the ranks 0, 1, 2, 3 read different")
    fully_shard(net, mesh=mesh["data"])
    refused(net, r"split along 2 dimensions of its mesh.*ranks.data_parallel\(mesh\[\"data\"\]\)")
    ranks.data_parallel(mesh["data"])
    supervised(net, adamw(net), mse_loss).run(dealt(batches()), max_epochs=1)


def a_part_that_is_not_sharded_is_refused():
    ranks.data_parallel(two_dimensions())
    net = Net()
    fully_shard(net.up)
    refused(net, r"'down.weight' is on no mesh.*fully_shard\(model\) on all of it")


def a_part_that_nothing_averages_is_refused():
    ranks.data_parallel(two_dimensions())
    net = parallelize_module(Net(), init_device_mesh("cpu", (4,)), PLAN)
    apart = {*net.up.parameters(), *net.down.parameters()}
    fully_shard(net, ignored_params=apart)
    refused(net, r"nothing averages the gradient of the parameter 'up.weight' over the 4 ranks")


def gradients_are_divided_by_the_number_of_ranks_that_read_different_data():
    ranks.data_parallel(two_dimensions())
    net = fully_shard(Net())
    net.set_gradient_divide_factor(1)
    refused(net, r"divides a sum of gradients by 1, as set_gradient_divide_factor said, and 4 rank")
    net.set_gradient_divide_factor(4)
    supervised(net, adamw(net), mse_loss).run(dealt(batches()), max_epochs=1)
    for shape, factor, message in (
        ((2, 2), 2, r"split along 2 .* as experts do, say so: .*set_gradient_divide_factor\(4\)"),
        ((2, 2), 1, r"split along 2 dimensions of its mesh"),
        ((1, 4), 4, r"fully_shard over one rank divides gradients by 4 twice, since .* float64"),
    ):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "experts"))
        net = parallelize_module(Net(), mesh["experts"], PLAN)
        for part in (net.up, net.down):
            fully_shard(part, mesh=mesh["data"]).set_gradient_divide_factor(factor)
        refused(fully_shard(net), message)
    # Experts alone: both splits cut the same dimension.
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "experts"))
    net = parallelize_module(Net(), mesh["experts"], {"up": ColwiseParallel()})
    fully_shard(net.up, mesh=mesh["data"])
    refused(fully_shard(net), r"'up.weight' is split along 2 .*set_gradient_divide_factor\(4\)")


def weights_in_two_splits_need_a_newer_torch():
    net = sharded("tp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "__version__", "2.10.0+cpu")
        refused(net, r"'up.weight' is split along two dimensions .* and this is 2.10.0\+cpu")


def shards_that_torch_would_not_cut_are_refused():
    ranks.data_parallel(None)
    mesh, own = init_device_mesh("cpu", (4,)), 3 if ranks.rank() == 0 else 1
    for kept, message in (
        (torch.zeros(own, 6, dtype=torch.float64), r"rank holds \(\d, 6\) of a tensor of \(6, 6\)"),
        (torch.zeros(2, 6, dtype=torch.float64), r"is no sharding that Camshaft knows"),
    ):
        place = Shard(0) if len(kept) != 2 else _StridedShard(0, split_factor=3)
        net = Net()
        held = DTensor.from_local(kept, mesh, [place], shape=(6, 6), stride=(6, 1))
        net.unused.weight = torch.nn.Parameter(held)
        refused(net, f"the weight 'unused.weight' cannot be saved: .*{message}")
    ranks.data_parallel(two_dimensions())


def a_model_is_averaged_by_those_that_read_different_data():
    mesh, plain = two_dimensions(), torch.nn.parallel.DistributedDataParallel
    spans = (mesh["data"], mesh["tensor"], None)
    for own, said in ((spans[0], None), (None, spans[0]), (spans[1], spans[0])):
        ranks.data_parallel(said or mesh)
        for is_sharded in (False, True):
            if is_sharded:
                net = fully_shard(Net(), mesh=own or init_device_mesh("cpu", (4,)))
            else:
                net = Net().requires_grad_(True)
                net.unused.requires_grad_(False)
                net.frozen.requires_grad_(False)
                net = plain(net, process_group=own and own.get_group())
            kind = "fully_shard" if is_sharded else "DistributedDataParallel"
            if own is not None and is_sharded:
                refused(net, "read different data, so its gradient is no mean")
            elif own is None:
                refused(net, f"{kind} averages gradients over the ranks 0, 1, 2, 3, and by .* the "
                        "ranks (0, 2|1, 3) read different.*context parallelism")  # fmt: skip
            else:
                refused(net, f"{kind} averages .* their weights would drift apart")
    # Each of two groups trains a model of its own, and says so; so does tensor parallelism.
    ranks.data_parallel(mesh["data"])
    net = Net()
    net.unused.requires_grad_(False)
    net = plain(net, process_group=ranks.data_group())
    supervised(net, adamw(net), mse_loss).run(dealt(batches()), max_epochs=1)


def ranks_that_split_each_sample_deal_by_the_mesh_and_count_by_all_ranks():
    ranks.data_parallel(two_dimensions())  # all, as without the line
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "context"))
    place = {"num_replicas": mesh["data"].size(), "rank": mesh["data"].get_local_rank()}
    inputs, targets = (torch.stack(each, 1) for each in zip(*batches(2, 19), strict=True))
    data, own = TensorDataset(inputs, targets), mesh["context"].get_local_rank()

    def trained(net, sampler, size, part):
        def take(batch):
            return tuple(each[:, part].flatten(0, -2) for each in batch)

        engine = supervised(net, adamw(net), mse_loss, prepare_batch=take).add(Average("loss"))
        return engine.run(DataLoader(data, size, sampler=sampler), max_epochs=2)

    for shard in (False, True):
        net, whole = Net(), Net()
        net.unused.requires_grad_(shard)
        whole.unused.requires_grad_(shard)
        split = fully_shard(net) if shard else torch.nn.parallel.DistributedDataParallel(net)
        sampler = DistributedSampler(data, shuffle=False, **place)
        state = trained(split, sampler, 4, slice(own, own + 1))
        with ranks.alone():
            expected = trained(whole, None, 8, slice(None))
        check_equal(net, whole)
        assert abs(state.metrics["loss/epoch"] - expected.metrics["loss/epoch"]) < 1e-12


def all_ranks_may_read_the_same():
    ranks.data_parallel(None)
    assert (ranks.data_rank(), ranks.data_world_size()) == (0, 1)
    assert len(loader(range(8), 4, training=True)) == 2
    net = parallelize_module(Net(), init_device_mesh("cpu", (4,)), PLAN)
    supervised(net, adamw(net), mse_loss).run(batches(), max_epochs=1)


def a_sampler_for_all_ranks_is_refused_where_some_read_the_same():
    net = sharded("tp")
    data = TensorDataset(torch.zeros(8, 6), torch.zeros(8, 2))
    engine = supervised(net, adamw(net), mse_loss)
    with pytest.raises(ValueError, match=r"4 ranks, and by .* 2 ranks read .*ranks.data_rank\(\)"):
        engine.run(DataLoader(data, 2, sampler=DistributedSampler(data)), max_epochs=1)


def arguments_that_would_hang_or_train_wrongly_are_refused():
    net = sharded("fsdp")
    with pytest.raises(ValueError, match=r"split=.* may cut .* accumulate="):
        supervised(net, adamw(net), mse_loss, split=2)
    with pytest.raises(ValueError, match="sync='close' averages whole gradients"):
        Update(adamw(net), model=net, sync="close")
    with pytest.raises(ValueError, match="LBFGS searches along all parameters as one vector"):
        Update(torch.optim.LBFGS(net.parameters()))
    with pytest.raises(ValueError, match="find_batch_size: the forward pass of FSDP"):
        find_batch_size(supervised(net, adamw(net), mse_loss), lambda size: batches(1, size)[0])
    with pytest.raises(ValueError, match="predict: the ranks hold the model together"):
        predict(supervised(net, adamw(net), mse_loss), dealt(batches()), "not-made")


def precision_and_policy_have_to_agree():
    for kind, precision, message in [
        (torch.bfloat16, "fp16", "the model computes in bfloat16 by its MixedPrecisionPolicy"),
        (torch.float16, "bf16", "the model computes in float16 by its MixedPrecisionPolicy"),
        (torch.float16, "fp32", "0 without a scaler: add precision='fp16'"),
    ]:
        net = sharded("fsdp", mp_policy=MixedPrecisionPolicy(param_dtype=kind))
        with pytest.raises(ValueError, match=message):
            supervised(net, adamw(net), mse_loss, precision=precision)
    for kind, precision in [(torch.float16, "fp16"), (torch.bfloat16, "bf16")]:
        net = sharded("fsdp", mp_policy=MixedPrecisionPolicy(param_dtype=kind))
        supervised(net, adamw(net), mse_loss, precision=precision)
        supervised(net, loss_fn=mse_loss)


def an_update_that_does_not_know_the_model_says_so():
    net = sharded("fsdp")
    update = Update(adamw(net), accumulate=2)

    def step(state, batch):
        update(state, mse_loss(net(batch[0]), batch[1]))

    with warnings.catch_warnings(record=True) as caught, pytest.MonkeyPatch.context() as patch:
        patch.delattr("gc.get_objects")  # the model is found among the engine's objects
        Engine(step, update, objects={"model": net}).run(dealt(batches()), max_epochs=1)
    said = [str(each.message) for each in caught if "was not told" in str(each.message)]
    assert len(said) == 1
    assert "averages gradients 2 times a step" in said[0]


def a_micro_batch_of_a_compiled_model_switches_averaging_off_and_on_again():
    net, state, flags = sharded("fsdp"), State(iteration=1, epoch_length=4), []
    net.set_requires_gradient_sync = flags.append
    compiled = torch.compile(net, backend="eager")
    with Update(adamw(net), model=compiled, accumulate=2).micro_batch(state):
        assert flags == [False]
    assert flags == [False, True]


checks.make(globals())
