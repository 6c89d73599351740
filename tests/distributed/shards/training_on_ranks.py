"""Run on ranks: a sharded model trains like the same model in one process, within 1e-12."""

import math
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.functional import mse_loss
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

sys.path.append(str(Path(__file__).parents[1]))
import checks
from models import (
    Net,
    adamw,
    batches,
    by_hand,
    check_equal,
    check_like_alone,
    dealt,
    mesh_of,
    sharded,
    train,
    weights,
)

from camshaft import Engine, Events, Update, checkpoint_activations, ranks, supervised
from camshaft.engine.modules import norm
from camshaft.handlers import (
    ClipGradNorm,
    ClipGradValue,
    Freeze,
    GradNorm,
    LRSchedule,
    NonFiniteGuard,
    SpikeGuard,
    WeightNorms,
    parameter_groups,
)
from camshaft.handlers.schedules import cosine, warmup

WAY = sys.argv[1]
GROUPS = 3
"""How many parts of the model `fully_shard` has split."""


class Messages(TorchDispatchMode):
    """Counts what is sent, by kind, and all operations."""

    def __init__(self):
        super().__init__()
        self.counts, self.operations = Counter(), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.operations += 1
        if function.namespace in ("c10d", "_c10d_functional"):
            self.counts[str(function).split(".")[1].strip("_").replace("_base", "")] += 1
        return function(*args, **kwargs or {})


def sent(run):
    """How many messages of each kind a call sends."""
    with Messages() as messages:
        run()
    return messages.counts


def steps_are_those_of_one_process():
    check_like_alone(WAY)


def so_are_those_of_a_step_of_ones_own():
    check_like_alone(WAY, make=by_hand, accumulate=4)


def accumulation_reduces_gradients_once_a_window():
    check_like_alone(WAY, accumulate=4)  # and the short last window is exact
    for accumulate, windows in [(1, 6), (2, 3), (4, 2), (6, 1)]:
        found = sent(partial(train, WAY, accumulate=accumulate))["reduce_scatter"]
        is_split = ranks.data_world_size() > 1
        assert found == GROUPS * windows * is_split, (accumulate, found)


def clipping_and_norms_are_over_all_shards():
    for kind in (2.0, 1.0, 3.0, float("inf")):
        check_like_alone(
            WAY, lambda kind=kind: [GradNorm(kind, name="raw"), ClipGradNorm(0.05, norm_type=kind)]
        )
    check_like_alone(WAY, lambda: [ClipGradValue(0.01), GradNorm(check=True)], accumulate=2)


def norms_of_weights_are_over_all_shards():
    each = Events.ITERATION_COMPLETED
    check_like_alone(WAY, lambda: [WeightNorms(each=True, when=each)])


def norms_send_a_message_for_each_dimension_of_a_mesh_and_none_for_each_parameter():
    plain = sent(partial(train, WAY)).get("allreduce", 0)
    dimensions = 2 if WAY == "tp" and ranks.data_world_size() > 1 else 1
    norms = ClipGradNorm(1.0), GradNorm(), SpikeGuard(), WeightNorms(when=Events.STEP_COMPLETED)
    for handler in norms:
        found = sent(partial(train, WAY, lambda handler=handler: [handler])).get("allreduce", 0)
        assert found - plain == 6 * dimensions, (handler, found, plain)


def the_norm_of_a_hundred_tensors_takes_as_many_operations_as_that_of_ten():
    mesh, found = mesh_of("fsdp")[0], []
    for count in (10, 100):
        ones = [distribute_tensor(torch.ones(ranks.world_size()), mesh, [Shard(0)])] * count
        with Messages() as messages:
            assert norm(ones) == (count * ranks.world_size()) ** 0.5
        found.append(messages.operations)
    assert found[0] == found[1] < 20


def guards_see_every_shard_and_leave_good_steps_alone():
    for options in ({}, {"fused": True}):
        optimizer = partial(adamw, **options)
        for policy in ("raise", "skip"):
            check_like_alone(WAY, lambda p=policy: [NonFiniteGuard(p)], optimizer=optimizer)


def nan_on_one_rank_is_kept_out_of_all_shards():
    keeps_nan_out(lambda policy: [NonFiniteGuard(policy)])


def so_it_is_where_the_norm_for_clipping_tells():
    for kind in (2.0, math.inf, 3.0):
        clipping = partial(ClipGradNorm, 1.0, norm_type=kind)
        keeps_nan_out(lambda policy, clipping=clipping: [clipping(), NonFiniteGuard(policy)])


def keeps_nan_out(guarded):
    for options in ({}, {"fused": True}):
        for policy in ("skip", "raise"):
            net, data = sharded(WAY), dealt([(x.clone(), y) for x, y in batches()])
            if ranks.rank(ranks.data_group()) == 0:
                data[2][0][0, 0] = float("nan")
            engine = supervised(net, adamw(net, **options), mse_loss, accumulate=1)
            engine.add(*guarded(policy))
            if policy == "skip":
                assert engine.run(data, max_epochs=1).step == 5
            else:
                with pytest.raises(FloatingPointError, match="step 3 are not finite"):
                    engine.run(data, max_epochs=1)
            assert all(each.isfinite().all() for each in weights(net).values())


def spikes_are_skipped_or_the_weights_go_back():
    for policy, metric in (("skip", "loss"), ("skip", "grad_norm"), ("rewind", "grad_norm")):
        copies = {"steps": 1} if policy == "rewind" else {}
        guard = partial(SpikeGuard, policy, metric=metric, window=2, deviations=0.01, **copies)
        state = check_like_alone(WAY, lambda guard=guard: [guard()], epochs=2)
        assert state.metrics["spikes"] > 0


def frozen_layers_rates_and_groups_are_as_ever():
    def optimizer(net):
        groups = parameter_groups(net, {"up.*": {"lr": 0.01}, "head.*": {"weight_decay": 0.1}})
        return torch.optim.AdamW(groups, lr=0.05)

    def handlers():
        thaw = Events.ITERATION_STARTED(at=3)
        return [Freeze("up.*", until=thaw), LRSchedule(warmup(2).then(cosine(final=0.1)))]

    check_like_alone(WAY, handlers, optimizer=optimizer)


def activations_may_be_computed_again():
    whole, _ = train("alone", accumulate=2)
    ways = (checkpointed_by_name, checkpointed_by_wrapper, checkpointed_by_hand)
    for again in (*ways, partial(checkpointed_by_name, keep="matmul")):
        net = again(Net())
        engine = supervised(net, adamw(net), mse_loss, accumulate=2)
        engine.run(dealt(batches()), max_epochs=1)
        if again is not checkpointed_by_wrapper:  # which gives names of its own
            check_equal(net, whole)
        else:
            names = zip(weights(net).values(), weights(whole).values(), strict=True)
            assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in names)


def checkpointed_by_name(net, keep=None):
    assert checkpoint_activations(net, "up", "first", keep=keep) == ["up", "first"]
    return sharded(WAY, net)


def checkpointed_by_wrapper(net):
    net = sharded(WAY, net)
    apply_activation_checkpointing(
        net, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda each: each is net.first
    )
    return net


def checkpointed_by_hand(net):
    net, forward = sharded(WAY, net), net.first.forward
    net.first.forward = lambda x: checkpoint(forward, x, use_reentrant=False)
    return net


def the_policy_of_the_model_is_its_precision():
    """The same bits as a loop that knows nothing of Camshaft; with precision= too."""
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for precision in ("fp32", "bf16"):
        net = sharded(WAY, Net().float(), mp_policy=half)
        plain = sharded(WAY, Net().float(), mp_policy=half)
        data = [(x.float(), y.float()) for x, y in dealt(batches())]
        engine = supervised(net, adamw(net), mse_loss, precision=precision, accumulate=2)
        engine.run(data, max_epochs=1)
        optimizer = adamw(plain)
        for number, (x, y) in enumerate(data):
            plain.set_requires_gradient_sync(number % 2 == 1)
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                mse_loss(plain(x), y).backward()
            if number % 2:
                for each in plain.parameters():
                    if each.grad is not None:
                        each.grad.mul_(0.5)
                optimizer.step()
                optimizer.zero_grad()
        for one, other in zip(weights(net).values(), weights(plain).values(), strict=True):
            assert torch.equal(one, other)


def gradients_of_float16_are_scaled_and_an_overflow_skips_the_step_on_all_ranks():
    half = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
    for options in ({}, {"mp_policy": half}):
        net = sharded(WAY, Net().float(), **options)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        update = Update(adamw(net), model=net, scaler=scaler)
        data = [(x.float(), y.float()) for x, y in dealt(batches())]
        if ranks.rank(ranks.data_group()) == 0:
            data[2][0][0, 0] = float("inf")
        engine = supervised(net, update, mse_loss, precision="fp16").add(ClipGradNorm(1.0))
        state = engine.run(data, max_epochs=1)
        assert (state.step, state.metrics["skipped_steps"], scaler.get_scale()) == (5, 1, 8.0)


def targets_are_counted_over_the_data_and_not_over_ranks():
    def run(net, data):
        loss = torch.nn.MSELoss(reduction="sum")
        count = lambda output: output.target.numel()  # noqa: E731
        supervised(net, adamw(net), loss, weight=count, accumulate=4).run(data, max_epochs=1)

    net, whole = sharded(WAY), Net()
    run(net, dealt(batches()))
    with ranks.alone():
        run(whole, batches())
    check_equal(net, whole)


def a_window_that_fails_leaves_nothing_to_the_next_run():
    net, data = sharded(WAY), dealt(batches())
    engine = supervised(net, adamw(net), mse_loss, accumulate=3)
    with pytest.raises(TypeError):  # in the forward pass of the second micro-batch
        engine.run([data[0], ("no tensor", data[0][1])], max_epochs=1)
    engine.run(data, max_epochs=1)
    check_equal(net, train("alone", accumulate=3)[0])


def weights_that_change_after_a_forward_pass_alone_are_those_that_train():
    net, whole, data = sharded(WAY), Net(), dealt(batches())
    optimizer = adamw(net)
    update = Update(optimizer)

    def step(state, batch):
        update(state, mse_loss(net(batch[0]), batch[1]))

    with torch.no_grad():
        net(data[0][0])
        for each in (*optimizer.param_groups[0]["params"], *whole.parameters()):
            each.mul_(2)
    Engine(step, objects={"model": net, "optimizer": optimizer}).run(data, max_epochs=1)
    with ranks.alone():
        supervised(whole, adamw(whole), mse_loss).run(batches(), max_epochs=1)
    check_equal(net, whole)


checks.make(globals(), int(sys.argv[2]))
