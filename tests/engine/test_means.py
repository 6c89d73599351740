"""Weighted means by name."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft.engine.means import LastValues, Means, flat, mean_over_ranks, samples_of, weight_of
from camshaft.engine.supervised import Output

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
    assert samples_of({"target": torch.ones(4)}) == 0
    assert weight_of(None, 0.5, "Metrics") == 0.5


def test_nested_results_have_joined_names():
    assert flat("", {"a": 1, "b": {"c": 2, "d": {}}}) == {"a": 1, "b/c": 2}
    assert flat("x", 3) == {"x": 3}


SCRIPT = """
import torch
import ignite.distributed as idist
from camshaft import Engine
from camshaft.engine import ranks
from camshaft.handlers import Average, Metrics, Totals

idist.initialize("gloo")
rank = ranks.rank()
calls = []
gathered, ranks.gathered = ranks.gathered, lambda value: calls.append(value) or gathered(value)

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
metrics = engine.run(data, max_epochs=1).metrics
assert len(calls) == 1, calls  # one collective for all functions together
expected = (0.7 * 256 + 0.8 * 256 + 0.9 * 10 + 0.1 * 10 + 1.0 * 90) / 622
assert abs(float(metrics["a"]) - expected) < 1e-12, metrics
assert float(metrics["b"]) == 5.0

engine = Engine(step, Average("loss", weight=by_samples))
engine.add(Average("loss", over=1, weight=by_samples))
engine.add(Totals({"samples": lambda batch: batch[1], "tokens": lambda batch: torch.tensor(2)}))
metrics = engine.run(data, max_epochs=1).metrics
assert abs(float(metrics["loss/epoch"]) - expected) < 1e-6
assert abs(float(metrics["loss/mean"]) - (0.9 * 10 + 1.0 * 90) / 100) < 1e-6
assert metrics["total/samples"] == 622 and metrics["total/tokens"] == 10
assert ranks.gathered(dict(metrics))[0].keys() == metrics.keys()
idist.barrier()
idist.finalize()
"""


def test_on_two_ranks_means_are_over_the_samples_of_both(processes):
    processes.run_ranks(2, SCRIPT)
