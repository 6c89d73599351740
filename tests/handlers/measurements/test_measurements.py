"""Norms of weights, garbage collection, log files of ranks, and use of the machine."""

import gc
import json
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers import (
    GarbageCollection,
    JSONLines,
    RankLogs,
    SystemUse,
    Throughput,
    Totals,
    WeightNorms,
)


class Sizes:
    """An object that is saved and has no weights."""

    def state_dict(self):
        return {}

    def load_state_dict(self, saved):
        pass


def build(model, **arguments):
    engine = Engine(lambda state, batch: None, objects={"model": model, "sizes": Sizes()})
    return engine.add(WeightNorms(**arguments))


def test_the_norm_is_that_of_all_weights_and_of_each_parameter_if_asked_for():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    metrics = build(model, each=True).run([1], max_epochs=1).metrics
    together = torch.cat([each.detach().flatten() for each in model.parameters()]).norm()
    torch.testing.assert_close(metrics["weight_norm"], together)
    assert not metrics["weight_norm"].requires_grad
    for name, each in model.named_parameters():
        torch.testing.assert_close(metrics[f"weight_norm/{name}"], each.detach().norm())
    assert build(model).run([1], max_epochs=1).metrics.keys() == {"weight_norm"}


def test_complex_weights_count():
    model = torch.nn.ParameterDict({"a": torch.tensor([3 + 4j]), "b": torch.tensor([12.0])})
    assert build(model).run([1], max_epochs=1).metrics["weight_norm"] == 13


def test_half_precision_does_not_overflow():
    model = torch.nn.Linear(1, 2, bias=False).half()
    torch.nn.init.constant_(model.weight, 60000)
    norm = build(model).run([1], max_epochs=1).metrics["weight_norm"]
    assert float(norm) == pytest.approx(60000 * 2**0.5, rel=1e-6)


def test_a_row_at_the_end_of_an_epoch_or_of_the_run_measures_nothing_again(tmp_path):
    engine = build(torch.nn.Linear(1, 1)).add(
        *(SystemUse(), Totals({"batches": lambda batch: 1}), Throughput()),
        JSONLines(tmp_path / "rows.jsonl"),
    )
    engine.run(range(100), max_epochs=2, max_iterations=130)
    rows = list(map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines()))
    assert [row["iteration"] for row in rows] == [50, 100, 130]
    assert [row["total/batches"] for row in rows] == [50, 100, 130]


@pytest.mark.parametrize("two", [(WeightNorms(), WeightNorms(True)), (SystemUse(), SystemUse())])
def test_two_of_a_kind_would_measure_into_one_metric_and_are_refused(two):
    with pytest.raises(ValueError, match="the second would write over the result of the first"):
        Engine(lambda state, batch: None, *two)


def test_two_models_are_measured_under_names_of_their_own():
    models = {"model": torch.nn.Linear(1, 1), "critic": torch.nn.Linear(2, 1, bias=False)}
    norms = WeightNorms(), WeightNorms(True, object="critic", name="critic")
    metrics = (
        Engine(lambda state, batch: None, *norms, objects=models).run([1], max_epochs=1).metrics
    )
    expected = {"weight_norm", "weight_norm/critic", "weight_norm/critic/weight"}
    assert metrics.keys() == expected
    assert metrics["weight_norm/critic"] == metrics["weight_norm/critic/weight"]


def test_it_measures_by_its_trigger():
    engine = build(torch.nn.Linear(1, 1), when=Events.ITERATION_COMPLETED(every=3))
    seen = []
    engine.on(Events.ITERATION_COMPLETED)(lambda s: seen.append("weight_norm" in s.metrics))
    engine.run(range(4), max_epochs=1)
    assert seen == [False, False, True, True]


def test_a_model_without_weights_has_no_norm():
    assert build(torch.nn.ReLU()).run([1], max_epochs=1).metrics == {}


def test_a_name_that_no_model_has_is_refused_as_the_run_starts():
    engine = build(torch.nn.Linear(1, 1), object="sizes")
    with pytest.raises(ValueError, match=r"object='sizes'.* its modules are 'model'"):
        engine.run([1], max_epochs=1)


@pytest.fixture
def collections():
    """The generations that were collected, as a list that grows."""
    seen = []

    def look(phase, about):
        if phase == "start":
            seen.append(about["generation"])

    gc.callbacks.append(look)
    yield seen
    gc.callbacks.remove(look)


def test_garbage_is_collected_by_its_trigger_and_at_no_other_time(collections):
    def make_garbage(state, batch):
        for _ in range(2000):
            cycle = []
            cycle.append(cycle)

    engine = Engine(make_garbage, GarbageCollection(when=Events.ITERATION_COMPLETED(every=4)))
    began, at = [], []
    engine.on(Events.STARTED)(lambda state: began.append(len(collections)))

    @engine.on(Events.ITERATION_STARTED)
    def look(state):
        at.append(len(collections) - began[0])

    engine.run(range(10), max_epochs=1)
    assert at == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert collections[began[0] :][:2] == [1, 1]


@pytest.mark.quick(enabled=1)
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("enabled", [True, False])
def test_afterwards_python_collects_as_before(enabled, fails):
    def step(state, batch):
        assert not gc.isenabled()
        if fails:
            raise RuntimeError("no")

    engine = Engine(step, GarbageCollection())
    (gc.enable if enabled else gc.disable)()
    try:
        if fails:
            with pytest.raises(RuntimeError, match="no"):
                engine.run([1], max_epochs=1)
        else:
            engine.run([1], max_epochs=1)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


@pytest.mark.slow
def test_a_run_inside_the_run_gives_nothing_back_too_early():
    inner = Engine(lambda state, batch: None, GarbageCollection())
    engine = Engine(lambda state, batch: inner.run([1], max_epochs=1), GarbageCollection())
    engine.on(Events.ITERATION_COMPLETED)(lambda state: seen.append(gc.isenabled()))
    seen = []
    engine.run([1], max_epochs=1)
    assert seen == [False]
    assert gc.isenabled()


SCRIPT = """
import logging, sys
import ignite.distributed as idist
from camshaft import Engine, ranks
from camshaft.handlers import RankLogs

idist.initialize("gloo")
logging.basicConfig(level="INFO")
log = logging.getLogger("script")
engine = Engine(lambda state, batch: log.info("batch %s", batch), RankLogs(sys.argv[1]))
engine.run([10 + ranks.rank()], max_epochs=1)
idist.finalize()
"""


def run(directory, step):
    return Engine(step, RankLogs(directory)).run([1], max_epochs=1)


def test_what_is_logged_during_a_run_is_in_the_file_and_nothing_else(tmp_path):
    log = logging.getLogger("script")
    run(tmp_path / "logs", lambda state, batch: log.warning("low on %s", "disk"))
    log.warning("later")
    text = (tmp_path / "logs" / "rank-0.log").read_text()
    assert "WARNING script: low on disk" in text
    assert "later" not in text
    run(tmp_path / "logs", lambda state, batch: log.warning("again"))
    text = (tmp_path / "logs" / "rank-0.log").read_text()
    assert "low on disk" in text  # the runs' lines follow each other
    assert text.count("again") == 1


def test_what_is_logged_while_a_run_is_loaded_is_in_it(tmp_path):
    engine = Engine(lambda state, batch: None, RankLogs(tmp_path))
    log = logging.getLogger("script")
    engine.on(Events.LOADING)(lambda state: log.warning("from iteration 3"))
    engine.run([1], max_epochs=1)
    assert "from iteration 3" in (tmp_path / "rank-0.log").read_text()


def test_the_traceback_of_a_run_that_fails_is_in_it_and_the_file_is_closed(tmp_path, caplog):
    def fail(state, batch):
        raise RuntimeError("no such luck")

    before = list(logging.getLogger().handlers)
    with pytest.raises(RuntimeError):
        run(tmp_path, fail)
    text = (tmp_path / "rank-0.log").read_text()
    assert "the run failed" in text
    assert "RuntimeError: no such luck" in text
    assert "in the process function" in text
    assert "the run failed" not in caplog.text
    assert logging.getLogger().handlers == before


def test_each_rank_has_a_file_of_its_own(processes, tmp_path):
    processes.run_ranks(2, SCRIPT, tmp_path)
    for rank in (0, 1):
        text = (tmp_path / f"rank-{rank}.log").read_text()
        assert f"INFO script: batch 1{rank}" in text
        assert f"batch 1{1 - rank}" not in text


NAMES = {"cpu/process", "cpu/system", "memory/process", "memory/available"}


def test_processor_and_memory_are_metrics():
    held = []

    def hold(state, batch):
        held.append(torch.ones(batch << 25))
        until = time.process_time() + 0.05  # the kernel counts in hundredths of a second
        while time.process_time() < until:
            sum(range(10_000))

    engine = Engine(hold, SystemUse(when=Events.ITERATION_COMPLETED))
    rows = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: rows.append(dict(state.metrics)))
    engine.run([0, 1], max_epochs=1)
    assert all(row.keys() >= NAMES for row in rows)
    assert rows[1]["memory/process"] - rows[0]["memory/process"] == pytest.approx(1 / 8, abs=1 / 16)
    assert rows[0]["cpu/process"] > 0
    total = psutil.virtual_memory().total / 2**30
    assert 0 < rows[1]["memory/available"] < total


def test_the_first_use_of_the_machine_is_that_since_the_run_has_started():
    def work(state, batch):
        until = time.process_time() + 0.05
        while time.process_time() < until:
            sum(range(10_000))

    engine = Engine(work, SystemUse(when=Events.ITERATION_COMPLETED))
    # psutil notes for each thread when it was asked last: nothing has asked in a new one.
    with ThreadPoolExecutor(1) as thread:
        metrics = thread.submit(engine.run, [0], max_epochs=1).result().metrics
    assert metrics["cpu/system"] > 0


@pytest.mark.gpu
def test_the_peak_of_the_device_is_that_since_the_last_measurement():
    engine = Engine(lambda state, batch: torch.ones(batch << 20, device="cuda") is None)
    engine.add(SystemUse(when=Events.ITERATION_COMPLETED))
    peaks = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: peaks.append(state.metrics["gpu/peak"]))
    engine.run([1, 256, 1], max_epochs=1)
    assert peaks[1] > 1.0
    assert peaks[2] < 0.1


def test_without_psutil_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "camshaft\[measurements\]"'):
        SystemUse()
