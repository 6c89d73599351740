"""How fast a run is, and its floating-point operations; no test asks for a certain speed."""

import time
from pathlib import Path
from socket import gethostname

import pytest
import torch

from camshaft import Engine, Events, supervised
from camshaft.handlers import Throughput, Validate
from camshaft.handlers.measurements import throughput
from camshaft.handlers.measurements.throughput import Clock, peak_of_device

ALWAYS = Events.ITERATION_COMPLETED


@pytest.fixture
def clock(monkeypatch):
    """Time that only passes when it is told to."""
    now = [0.0]
    monkeypatch.setattr(throughput, "perf_counter", lambda: now[0])

    def take(seconds):
        now[0] += seconds

    return take


class Slow(list):
    """A loader that takes half a second for each batch."""

    def __init__(self, clock, batches):
        super().__init__(batches)
        self.clock = clock

    def __iter__(self):
        for batch in super().__iter__():
            self.clock(0.5)
            yield batch


def test_waiting_for_data_and_the_step_are_told_apart(clock):
    engine = Engine(lambda state, batch: clock(3.0), Throughput(samples=len, tokens=sum))
    data = Slow(clock, [[1, 2], [3, 4]])
    metrics = engine.run(data, max_epochs=2).metrics
    assert metrics["data_time"] == 0.5
    assert metrics["step_time"] == 3.0
    assert metrics["samples_per_second"] == 4 / 7
    assert metrics["tokens_per_second"] == 10 / 7


def test_validation_saves_and_what_handlers_do_count_for_nothing(clock):
    engine = Engine(lambda state, batch: clock(1.0 if state.training else 50.0))
    engine.add(Throughput(samples=len))
    engine.add(Validate([[1]], when=Events.EPOCH_COMPLETED | ALWAYS(every=2)))
    engine.on(ALWAYS)(lambda state: state.save("often"))
    engine.on(Events.SAVING)(lambda state: clock(100.0))
    engine.on(Events.EPOCH_COMPLETED | Events.EPOCH_STARTED)(lambda state: clock(1000.0))
    metrics = engine.run(Slow(clock, [[1, 2]] * 5), max_epochs=2).metrics
    assert (metrics["data_time"], metrics["step_time"]) == (0.5, 1.0)
    assert metrics["samples_per_second"] == 2 / 1.5


def test_each_report_is_over_the_iterations_since_the_last_one(clock):
    engine = Engine(lambda state, batch: clock(batch), Throughput(when=ALWAYS(every=2)))
    seen = []
    engine.on(ALWAYS(every=2))(lambda state: seen.append(state.metrics["step_time"]))
    engine.run([1.0, 3.0, 5.0, 9.0], max_epochs=1)
    assert seen == [2.0, 7.0]


def test_samples_are_by_default_the_length_of_the_first_tensor(clock):
    engine = Engine(lambda state, batch: clock(1.0), Throughput())
    data = [{"ids": [torch.ones(6, 2)], "labels": torch.ones(3)}]
    assert engine.run(data, max_epochs=1).metrics["samples_per_second"] == 6.0
    assert "samples_per_second" not in engine.run([None], max_epochs=1).metrics


def test_flops_may_be_said_and_the_utilisation_is_their_share_of_the_peak(clock):
    handler = Throughput(samples=len, flops=lambda batch: 6 * len(batch), peak_flops=24.0)
    engine = Engine(lambda state, batch: clock(1.0), handler)
    metrics = engine.run([[1, 2], [3, 4]], max_epochs=1).metrics
    assert metrics["flops_per_second"] == 12.0
    assert metrics["mfu"] == 0.5


def build(*handlers):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss, accumulate=2)
    return engine.add(*handlers)


PAIRS = [(torch.ones(n, 8), torch.ones(n, 1)) for n in (16, 16, 4)]
PER_SAMPLE = 2 * (2 * 8 * 4 + 3 * 4 * 1)  # the first layer needs no gradient of its input


def test_flops_are_counted_in_the_first_iteration_and_training_is_the_same():
    handler = Throughput(flops="measure", peak_flops=1e9)
    measured = build(handler)
    state = measured.run(PAIRS, max_epochs=2)
    assert state.memory.saved["Throughput"].per_sample == PER_SAMPLE
    samples, flops = state.metrics["samples_per_second"], state.metrics["flops_per_second"]
    assert flops == pytest.approx(samples * PER_SAMPLE)
    assert state.metrics["mfu"] == flops / 1e9
    plain = build()  # with the same seed again
    plain.run(PAIRS, max_epochs=2)
    for ours, theirs in zip(
        measured.objects["model"].parameters(), plain.objects["model"].parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_a_resumed_run_does_not_count_again(monkeypatch, paused):
    state = paused(build(Throughput(flops="measure")), PAIRS, 2)
    monkeypatch.setattr(Clock, "count_flops", None)
    metrics = build(Throughput(flops="measure")).run(PAIRS, max_epochs=1, state=state).metrics
    assert metrics["flops_per_second"] > 0


def test_a_step_that_fails_leaves_no_counter_behind():
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    def fail(state, batch):
        raise RuntimeError("no")

    engine = Engine(fail, Throughput(flops="measure"))
    with pytest.raises(RuntimeError, match="no"):
        engine.run([1], max_epochs=1)
    assert _get_current_dispatch_mode() is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"samples": 3}, TypeError),
        ({"tokens": "measure"}, TypeError),
        ({"flops": "count"}, TypeError),
        ({"peak_flops": 0}, ValueError),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, error):
    with pytest.raises(error, match=rf"Throughput\({next(iter(arguments))}="):
        Throughput(**arguments)


def test_it_takes_the_time_of_real_steps():
    engine = Engine(lambda state, batch: time.sleep(0.002), Throughput(samples=len))
    metrics = engine.run([[1, 2]] * 5, max_epochs=1).metrics
    assert metrics["step_time"] >= 0.002
    assert 0 < metrics["samples_per_second"] <= 2 / 0.002


SCRIPT = """
import ignite.distributed as idist
from camshaft import Engine
from camshaft.engine import ranks
from camshaft.handlers import Throughput
from camshaft.handlers.measurements import throughput

idist.initialize("gloo")
now = [0.0]
throughput.perf_counter = lambda: now[0]

def step(state, batch):
    now[0] += 1.0 + ranks.rank()

handler = Throughput(samples=len, flops=len, peak_flops=5.0)
metrics = Engine(step, handler).run([[1, 2]] * 3, max_epochs=1).metrics
assert metrics["samples_per_second"] == 2 / 1 + 2 / 2, metrics
assert metrics["mfu"] == 3.0 / 10.0
idist.finalize()
"""


def test_a_sample_that_a_rank_trains_on_without_a_share_is_not_counted(clock):
    def step(state, batch):
        clock(1.0)
        state.share = 0.0 if len(batch) == 1 else 1.0

    counts = {"samples": len, "tokens": len, "flops": len}
    state = Engine(step, Throughput(**counts, peak_flops=1.0)).run([[1, 2], [3]], max_epochs=1)
    rates = ("samples_per_second", "tokens_per_second", "flops_per_second")
    assert [state.metrics[name] for name in rates] == [1.0] * 3


def test_rates_are_those_of_all_ranks_together(processes):
    processes.run_ranks(2, SCRIPT)


def test_a_forward_and_backward_pass_is_counted():
    layer, inputs = torch.nn.Linear(8, 4, bias=False), torch.randn(16, 8)
    counter = Clock()
    counter.count_flops()
    layer(inputs).sum().backward()
    assert counter.counted_flops() == 2 * 2 * 16 * 8 * 4  # forward, and the gradient of the weights


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H200", 989e12),
        ("Tesla V100-SXM2-16GB", 125e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("Tesla T4", 65e12),
        ("NVIDIA GeForce GTX 1080", None),
        ("", None),
    ],
)
def test_the_peak_is_known_of_common_devices(name, peak):
    assert peak_of_device(name) == peak


def test_several_ranks_say_which_one_is_slow_and_where_it_runs(processes):
    script = Path(__file__).with_name("slow_on_ranks.py")
    first, *others = processes.run_ranks(3, script)
    line = f"data_time: slowest 1.5 s (rank 1, {gethostname()}), median 0.5 s (rank 0, "
    assert line in first.stderr
    assert "slowest" not in "".join(each.stderr for each in others)
