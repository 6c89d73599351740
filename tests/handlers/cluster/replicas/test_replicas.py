"""What replicas refuse before their run, and sums that do not depend on who computes them."""

from fractions import Fraction

import pytest
import torch
from torch import nn

from camshaft import Engine, Update, supervised
from camshaft.handlers import (
    Checkpoint,
    Export,
    HangWatchdog,
    Journal,
    Local,
    MemorySnapshot,
    Profile,
    RankLogs,
    Replicas,
    Steering,
)
from camshaft.handlers.cluster.replicas.sums import dealt, halves, sum_over

pytest.importorskip("torchft")
NOWHERE = "http://127.0.0.1:9"


def leaves(node):
    return [node] if node[1] - node[0] == 1 else [e for each in halves(node) for e in leaves(each)]


@pytest.mark.parametrize("shards", [1, 2, 5, 8, 13])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_every_shard_is_dealt_once_and_the_sums_have_the_same_bits(shards, count):
    values = torch.randn(shards, 7, generator=torch.Generator().manual_seed(3))

    def leaf(node):
        return values[node[0]].clone() if node[1] - node[0] == 1 else None

    nodes = [node for index in range(count) for node in dealt(shards, index, count)]
    assert [each for node in nodes for each in leaves(node)] == leaves((0, shards))
    parts = {node: sum_over(node, leaf) for node in nodes}
    assert torch.equal(sum_over((0, shards), parts.get), sum_over((0, shards), leaf))
    assert sum(Fraction(1, shards) for _ in leaves((0, shards))) == 1


def engine_of(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return supervised(model, optimizer, nn.functional.mse_loss, **options)


BATCHES = [(torch.ones(4, 2), torch.ones(4, 1))]


def test_what_replicas_cannot_share_is_refused_before_the_run(tmp_path):
    replicas = Replicas(NOWHERE)
    with pytest.raises(ValueError, match="Leave accumulate out"):
        engine_of(nn.Linear(2, 1), accumulate=2).add(replicas).run(BATCHES, max_epochs=1)
    with pytest.raises(ValueError, match="Replicas needs one Update"):
        Engine(lambda state, batch: None, replicas).run(BATCHES, max_epochs=1)
    update = Update(torch.optim.LBFGS([nn.Parameter(torch.zeros(()))]))
    with pytest.raises(ValueError, match="gradient scaler"):
        Engine(lambda state, batch: None, update, replicas).run(BATCHES, max_epochs=1)
    engine = engine_of(nn.Linear(2, 1)).add(Checkpoint(tmp_path / "a"), replicas)
    with pytest.raises(ValueError, match="was added before Replicas"):
        engine.run(BATCHES, max_epochs=1)
    local = Local(tmp_path / "c")
    with pytest.raises(ValueError, match="copies that replicas do not need"):
        engine_of(nn.Linear(2, 1)).add(replicas, local).run(BATCHES, max_epochs=1)
    model = nn.Linear(2, 1)
    model.noise = torch.Generator()
    with pytest.raises(ValueError, match="random numbers of its own"):
        engine_of(model).add(replicas).run(BATCHES, max_epochs=1)


@pytest.mark.parametrize(
    "writer",
    [
        *(Journal, Export, Profile, RankLogs, MemorySnapshot, Steering),
        lambda path: HangWatchdog(path=path),
    ],
)
def test_a_handler_whose_files_each_replica_would_write_is_refused(tmp_path, writer):
    engine = engine_of(nn.Linear(2, 1)).add(Replicas(NOWHERE), writer(tmp_path / "files"))
    with pytest.raises(ValueError, match="would write on each replica"):
        engine.run(BATCHES, max_epochs=1)


ON_TWO_RANKS = """
    import torch
    from torch import nn
    from camshaft import ranks, supervised
    from camshaft.handlers import Replicas

    with ranks.process_group("gloo"):
        model = ranks.prepare(nn.Linear(4, 1), device="cpu")
        engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss)
        engine.add(Replicas("http://127.0.0.1:9"))
        engine.run([(torch.ones(2, 4), torch.ones(2, 1))], max_epochs=1)
"""


def test_a_replica_of_several_ranks_needs_a_model_that_is_split_over_them(processes):
    for each in processes.run_ranks(2, ON_TWO_RANKS, code=1):
        assert "Split all of them before the optimizer is made" in each.stderr


def test_wrong_arguments_are_refused_when_the_handler_is_made():
    with pytest.raises(ValueError, match="a number of pieces"):
        Replicas(NOWHERE, shards=0)
    with pytest.raises(ValueError, match="seconds greater than 0"):
        Replicas(NOWHERE, timeout=0)


def test_a_lighthouse_that_is_not_there_is_named():
    engine = engine_of(nn.Linear(2, 1)).add(Replicas(NOWHERE, timeout=0.2))
    with pytest.raises(ConnectionError, match="torchft_lighthouse"):
        engine.run(BATCHES, max_epochs=1)
    engine = engine_of(nn.Linear(2, 1)).add(Replicas("somewhere"))
    with pytest.raises(ValueError, match="needs its address"):
        engine.run(BATCHES, max_epochs=1)


def test_a_simulation_needs_no_other_replica():
    def plan(*handlers):
        engine = engine_of(nn.Linear(2, 1)).add(*handlers)
        return engine.simulate(max_epochs=2, epoch_length=2)

    lines = str(plan(Replicas(NOWHERE))).splitlines()
    own = [each for each in lines if "Replicas" not in each]
    assert len(own) < len(lines)
    assert [each for each in own if "iteration 0" not in each] == [
        *("  Events.STARTED 1            Supervised.check_mode", "epoch 1, iteration 1"),
        *("epoch 1, iteration 2", "epoch 2, iteration 3", "epoch 2, iteration 4"),
    ]
