"""Run on three ranks: each batch of the second one takes a second longer, by a clock of its own."""

import logging

import torch.distributed as dist

from camshaft import Engine, Events, ranks
from camshaft.handlers import Throughput
from camshaft.handlers.measurements import throughput

now = [0.0]
throughput.perf_counter = lambda: now[0]
logging.basicConfig(level="INFO")


def batches():
    for _ in range(4):
        now[0] += 1.5 if ranks.rank() == 1 else 0.5
        yield [1, 2]


def step(state, batch):
    now[0] += 2.0 - 0.25 * ranks.rank()


with ranks.process_group("gloo"):
    calls = []
    for name in ("all_gather_object", "gather_object", "broadcast_object_list", "all_reduce"):

        def counted(*arguments, call=getattr(dist, name), name=name, **options):
            calls.append(name)
            return call(*arguments, **options)

        setattr(dist, name, counted)
    often = Events.ITERATION_COMPLETED(every=2)
    Engine(step).run(batches(), max_epochs=1)
    without = sorted(calls)
    calls.clear()
    metrics = Engine(step, Throughput(samples=len, when=often)).run(batches(), max_epochs=1).metrics
    each = ["broadcast_object_list", "gather_object"]
    assert sorted(calls) == sorted(each * 2 + without)  # one question and answer for each report
    found = {name: value for name, value in metrics.items() if "/" in name}
    assert found == {
        "data_time/slowest": 1.5,
        "data_time/median": 0.5,
        "data_time/fastest": 0.5,
        "data_time/slowest_rank": 1,
        "step_time/slowest": 2.0,
        "step_time/median": 1.75,
        "step_time/fastest": 1.5,
        "step_time/slowest_rank": 0,
    }, found
    assert metrics["data_time"] == (1.5 if ranks.rank() == 1 else 0.5)
    assert metrics["samples_per_second"] == 2 / 2.5 + 2 / 3.25 + 2 / 2.0
