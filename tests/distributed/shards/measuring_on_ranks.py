"""Run on ranks: what is measured on a sharded model is what one process measures, within 1e-12."""

import sys
from contextlib import nullcontext
from pathlib import Path

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchmetrics import SumMetric

sys.path.append(str(Path(__file__).parents[1]))
import checks
from models import Net, adamw, batches, by_hand, by_supervised, check_equal, dealt, sharded, weights

from camshaft import Events, loader, ranks, supervised
from camshaft.handlers import (
    Average,
    Collect,
    Metrics,
    NonFiniteGuard,
    Throughput,
    Totals,
    Validate,
    describe_groups,
    describe_model,
    find_lr,
    parameter_groups,
)

WAY = sys.argv[1]
SAMPLES = TensorDataset(*(torch.cat(each) for each in zip(*batches(), strict=True)))


def near(one, other):
    return abs(float(one) - float(other)) < 1e-12


def evaluations_before_and_between_training_leave_it_alone():
    for make in (by_supervised, by_hand):
        found = []
        for net in (sharded(WAY), Net()):
            data = batches() if type(net) is Net else dealt(batches())
            engine = make(net, adamw(net), 1).add(Average("loss", weight=1))
            often = Events.STARTED | Events.ITERATION_COMPLETED(every=2)
            engine.add(Validate(data[:3], when=often), NonFiniteGuard())
            with ranks.alone() if type(net) is Net else nullcontext():
                engine.evaluate(data)
                found.append((net, engine.run(data, max_epochs=2)))
        (net, state), (whole, expected) = found
        check_equal(net, whole)
        for name in expected.metrics.keys() & {"val/loss", "loss/epoch"}:
            assert near(state.metrics[name], expected.metrics[name]), name


def ranks_with_fewer_batches_go_along_and_each_sample_counts_once():
    number = ranks.data_world_size() * 4 + 1
    inputs, targets = (each[:number] for each in SAMPLES.tensors)
    with torch.no_grad():
        expected = mse_loss(Net()(inputs), targets)
    net = sharded(WAY)
    engine = supervised(net, adamw(net), mse_loss)
    engine.add(Collect(select=lambda output: {"target": output.target}))
    calls = []
    engine.evaluation.on(Events.ITERATION_COMPLETED)(calls.append)
    rows = [(x[None], y[None]) for x, y in zip(inputs, targets, strict=True)]
    own = rows[ranks.data_rank() :: ranks.data_world_size()]
    place = {"num_replicas": ranks.data_world_size(), "rank": ranks.data_rank()}
    part = TensorDataset(inputs, targets)
    plain = DataLoader(part, 1, sampler=DistributedSampler(part, shuffle=False, **place))
    for data in (plain, own, iter(own), loader(part, ranks.data_world_size(), training=False)):
        calls.clear()
        state = engine.evaluate(data)
        assert near(state.metrics["loss"], expected)
        assert len(calls) == len(own)  # nobody sees the passes for others
        assert len(state.collected["outputs"]["target"]) == number


def metrics_count_each_sample_once():
    net = sharded(WAY)
    metrics = Metrics({"sum": SumMetric()}, select=lambda output: output.target.sum())
    engine = supervised(net, adamw(net), mse_loss).add(
        metrics, Totals(when=Events.EPOCH_COMPLETED), Average("loss"), Throughput()
    )
    state = engine.run(loader(SAMPLES, 12, training=True), max_epochs=1)
    assert state.metrics["total/samples"] == len(SAMPLES)
    assert abs(float(state.metrics["sum"]) - float(SAMPLES.tensors[1].sum())) < 1e-4  # float32


def a_loader_deals_out_to_those_that_read_different_data():
    whole, net = Net(), sharded(WAY)
    supervised(net, adamw(net), mse_loss).run(loader(SAMPLES, 12, training=True), max_epochs=2)
    with ranks.alone():
        engine = supervised(whole, adamw(whole), mse_loss)
        engine.run(loader(SAMPLES, 12, training=True), max_epochs=2)
    check_equal(net, whole)


def a_rate_is_found_and_everything_is_as_before():
    net, whole = sharded(WAY), Net()
    before, after = weights(net), weights(net)
    curve = find_lr(supervised(net, adamw(net), mse_loss), dealt(batches()), steps=8)
    after = weights(net)
    assert all(torch.equal(each, after[name]) for name, each in before.items())
    with ranks.alone():
        expected = find_lr(supervised(whole, adamw(whole), mse_loss), batches(), steps=8)
    assert all(map(near, curve.losses, expected.losses))


def tables_count_whole_parameters():
    net, whole = sharded(WAY), Net()
    table = describe_model(net)
    assert table.replace("FSDP", "").split() == describe_model(whole).split()
    groups = [parameter_groups(each, {"up.*": {"lr": 0.1}}) for each in (net, whole)]
    assert describe_groups(groups[0]) == describe_groups(groups[1])
    describe_model(net, SAMPLES.tensors[0][:4])


checks.make(globals())
