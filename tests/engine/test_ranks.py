"""Ranks, and weighted means over them."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft import Engine, Events, on_rank, ranks
from camshaft.engine.means import LastValues, Means, flat, mean_over_ranks, samples_of, weight_of
from camshaft.engine.supervised import Output
from camshaft.handlers import ClipGradNorm, Metrics

SCRIPT = """
import sys
import torch, torch.distributed as dist
import ignite.distributed as idist
from camshaft import Engine, EventEnum, Events, Update, on_rank, ranks

idist.initialize("gloo")
rank = dist.get_rank()
assert (ranks.rank(), ranks.world_size()) == (rank, 2)
assert ranks.agreed(float(rank + 5)) == 5.0
assert ranks.any_rank(rank == 1) is True and ranks.any_rank(False) is False
assert ranks.total(rank + 1) == 3
assert ranks.total(torch.tensor([rank, 1.0])).tolist() == [1.0, 2.0]
lies = torch.arange(6).view(2, 3)  # in another order in the memory of each rank
lies = lies.t().contiguous().t() if rank else lies
assert ranks.total(lies).tolist() == [[0, 2, 4], [6, 8, 10]]
assert ranks.total(lies[:, 1]).tolist() == [2, 8]
assert ranks.largest(lies).tolist() == [[0, 1, 2], [3, 4, 5]]
assert ranks.total(torch.eye(2).to_sparse()).to_dense().tolist() == [[2, 0], [0, 2]]
own = torch.full((2,), float(rank + 5))
ranks.share([own])
assert own.tolist() == [5.0, 5.0]
assert ranks.gathered({"rank": rank}) == [{"rank": 0}, {"rank": 1}]

class Writer:
    def attach(self, engine):
        engine.on(Events.STARTED)(lambda state: print(f"rank {rank} writes"))

Engine(lambda state, batch: None, on_rank(1, Writer())).run([1], max_epochs=1)

# Uneven token counts on two ranks: the gradient is that of all tokens in one batch.
tokens = [[3, 1, 7, 2, 5], [4, 4, 1, 6, 2]]
values = [torch.arange(1.0 + i, 1 + i + sum(t), dtype=torch.float64).split(t)
          for i, t in enumerate(tokens)]
weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
holder = torch.nn.Module()
holder.weight = weight
holder.forward = lambda x: (holder.weight * x).sum()
model = torch.nn.parallel.DistributedDataParallel(holder)
update = Update(torch.optim.SGD(model.parameters(), lr=0.0), accumulate=2)

def process(state, batch):
    update(state, model(values[rank][batch]), weight=tokens[rank][batch])

gradients = []
engine = Engine(process)
engine.on(Events.GRADIENTS_READY)(lambda state: gradients.append(weight.grad.item()))
engine.run(range(5), max_epochs=1)
windows = [(0, 2), (2, 4), (4, 5)]
expected = [torch.cat([v for own in values for v in own[a:b]]).mean().item() for a, b in windows]
assert all(abs(x - y) < 1e-6 for x, y in zip(gradients, expected, strict=True)), gradients

# seconds= fires at the same iterations everywhere, whatever each rank's clock says.
import time
calls = []
engine = Engine(lambda state, batch: time.sleep(0.001 * (1 + rank)))
engine.on(Events.ITERATION_COMPLETED(seconds=0.02))(lambda state: calls.append(state.iteration))
engine.run(range(60), max_epochs=1)
assert len(calls) >= 1
assert ranks.gathered(calls)[0] == ranks.gathered(calls)[1], calls

# A handler that one rank alone has cannot wait for the others: its own clock decides.
class Lonely:
    only_on_rank = 0
    calls = 0
    def attach(self, engine):
        engine.on(Events.ITERATION_COMPLETED(seconds=0.01))(self.count)
    def count(self, state):
        self.calls += 1

alone, declared = Lonely(), on_rank(1, type("Quiet", (Lonely,), {"only_on_rank": None})())
Engine(lambda state, batch: time.sleep(0.002), alone, declared).run(range(40), max_epochs=1)
assert (alone.calls > 0) == (rank == 0)
assert (declared.handler.calls > 0) == (rank == 1)

idist.barrier()
del model, update, process, engine  # gloo's threads abort if DDP outlives the group
idist.finalize()
"""


def test_alone_every_question_has_its_own_answer():
    assert (ranks.rank(), ranks.world_size()) == (0, 1)
    assert not ranks.is_distributed()
    assert ranks.agreed(2.5) == 2.5
    assert ranks.any_rank(True) is True
    assert ranks.total(3) == 3
    assert torch.equal(ranks.total(torch.ones(2)), torch.ones(2))
    assert ranks.gathered("mine") == ["mine"]


def test_a_handler_of_another_rank_is_not_attached():
    engine = Engine(lambda state, batch: None)
    engine.add(on_rank(1, ClipGradNorm(1.0)), on_rank(0, Metrics({})))
    assert list(engine.handlers) == ["on_rank", "Metrics"]
    assert not engine.signal(Events.GRADIENTS_READY).receivers


def test_on_two_ranks_decisions_and_gradients_are_common(processes):
    first, second = processes.run_ranks(2, SCRIPT)
    assert (first.stdout, second.stdout) == ("", "rank 1 writes\n")


PAIRS = st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(1, 1000)), min_size=1, max_size=30)


def mean_of(pairs, sums, number):
    for value, weight in pairs:
        sums.add("x", number(value), weight)
    return float(mean_over_ranks(sums.sums)["x"])


@given(PAIRS)
def test_tensors_floats_and_a_wide_window_have_the_same_mean(pairs):
    def double(value):
        return torch.tensor(value, dtype=torch.float64)

    expected = math.fsum(v * w for v, w in pairs) / sum(w for _, w in pairs)
    scale = 1 + max(abs(v) for v, _ in pairs)
    for number in (float, double):
        for sums in (Means(), LastValues(30)):
            assert abs(mean_of(pairs, sums, number) - expected) <= 1e-12 * scale


def test_a_weight_may_be_a_tensor_and_a_value_may_be_a_truth():
    means = Means()
    means.add("x", torch.tensor(True), torch.tensor(3))
    means.add("x", torch.tensor([0]), 1)
    assert float(mean_over_ranks(means.sums)["x"]) == 0.75


def test_what_an_accumulation_has_saved_does_not_change_afterwards():
    for sums in (Means(), Means(0.5), LastValues(3)):
        sums.add("x", torch.tensor(1.0), 1)
        saved = sums.state_dict()
        before = str(saved)
        sums.add("x", torch.tensor(5.0), 1)
        assert str(saved) == before


def test_a_value_that_changes_afterwards_does_not_change_the_window():
    window, value = LastValues(3), torch.tensor(1.0)
    window.add("x", value, 1)
    value.fill_(100.0)
    assert mean_over_ranks(window.sums) == {"x": 1.0}


def test_nothing_has_no_mean():
    assert mean_over_ranks({}) == mean_over_ranks(LastValues(2).sums) == {}


def test_samples_are_those_of_the_target_or_else_of_the_prediction():
    loss = torch.tensor(0.0)
    assert samples_of(Output(loss, torch.ones(2, 3), torch.ones(5))) == 5
    assert samples_of(Output(loss, torch.ones(2, 3), None)) == 2
    assert samples_of(Output(loss, None, {"boxes": [torch.ones(4, 2)]})) == 4
    assert samples_of({"scores": torch.ones(4)}) is None
    assert weight_of(None, 0.5, "Metrics") == 0.5


def test_nested_results_have_joined_names():
    assert flat("", {"a": 1, "b": {"c": 2, "d": {}}}) == {"a": 1, "b/c": 2}
    assert flat("x", 3) == {"x": 3}


MEANS_SCRIPT = """
import torch
import ignite.distributed as idist
from camshaft import Engine
from camshaft.engine import ranks
from camshaft.handlers import Average, Metrics, Totals

idist.initialize("gloo")
rank = ranks.rank()
calls = []
summed, ranks.summed = ranks.summed, lambda *each, **of: calls.append(each) or summed(*each, **of)

# Rank 0 has three batches and rank 1 two; only one of them has a "b".
data = [[(0.7, 256), (0.8, 256), (0.9, 10)], [(0.1, 10), (float(rank), 90)]][rank]

def step(state, batch):
    state.metrics["loss"] = torch.tensor(batch[0])
    record = {"a": batch[0], "n": batch[1]}
    return record | {"b": torch.tensor(5.0)} if rank else record

def by_samples(output):
    return output["n"]

def same(record):
    return record

engine = Engine(step, Metrics(same, select=same, weight=by_samples))
metrics = engine.run(data, max_epochs=1, uneven="ignore").metrics
assert len(calls) == 1, calls  # one question for all functions together
expected = (0.7 * 256 + 0.8 * 256 + 0.9 * 10 + 0.1 * 10 + 1.0 * 90) / 622
assert abs(float(metrics["a"]) - expected) < 1e-12, metrics
assert float(metrics["b"]) == 5.0

engine = Engine(step, Average("loss", weight=by_samples))
engine.add(Average("loss", over=1, weight=by_samples))
engine.add(Totals({"samples": lambda batch: batch[1], "tokens": lambda batch: torch.tensor(2)}))
metrics = engine.run(data, max_epochs=1, uneven="ignore").metrics
assert abs(float(metrics["loss/epoch"]) - expected) < 1e-6
assert abs(float(metrics["loss/mean"]) - (0.9 * 10 + 1.0 * 90) / 100) < 1e-6
assert metrics["total/samples"] == 622 and metrics["total/tokens"] == 10
assert ranks.gathered(dict(metrics))[0].keys() == metrics.keys()
idist.barrier()
idist.finalize()
"""


def test_on_two_ranks_means_are_over_the_samples_of_both(processes):
    processes.run_ranks(2, MEANS_SCRIPT)
