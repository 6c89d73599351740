"""Profiles of real runs, read back from their traces, and what handlers cost."""

import json
import logging
import re
import time

import pytest
import torch

from camshaft import Engine, Events, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, Profile, TimeHandlers, Validate

BATCHES = [(torch.ones(4, 2), torch.ones(4, 1))] * 12


def trained(*handlers):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return supervised(model, optimizer, torch.nn.functional.mse_loss).add(*handlers)


def names(path):
    """How often each name is in a trace."""
    found = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        found[event["name"]] = found.get(event["name"], 0) + 1
    return found


def traces(directory):
    return sorted(directory.glob("rank0.*.pt.trace.json"))


def is_running():
    return torch.autograd._profiler_enabled()


def test_a_trace_holds_operators_steps_and_handlers(tmp_path, caplog):
    engine = trained(ClipGradNorm(1.0), Profile(tmp_path, wait=2, warmup=1, active=3))
    with caplog.at_level(logging.INFO, "camshaft"):
        engine.run(BATCHES, max_epochs=1)
    (path,) = traces(tmp_path)
    found = names(path)
    assert found["aten::addmm"] == 3
    assert {name for name in found if name.startswith("ProfilerStep#")} == {
        *("ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5")
    }
    assert found["Events.GRADIENTS_READY ClipGradNorm.clip"] == 3
    assert "aten::addmm" in caplog.text
    assert str(tmp_path) in caplog.text


def test_each_cycle_writes_a_trace_and_afterwards_nothing_is_profiled(tmp_path):
    engine = trained(Profile(tmp_path, wait=1, warmup=1, active=2, repeat=2))
    seen = []
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: seen.append((is_running(), len(engine.signals.watches)))
    )
    engine.run(BATCHES, max_epochs=1)
    assert [names(path)["aten::addmm"] for path in traces(tmp_path)] == [2, 2]
    assert [watches for _, watches in seen] == [1] * 8 + [0] * 4
    assert [running for running, _ in seen[8:]] == [False] * 4
    assert any(running for running, _ in seen[:8])


def test_it_begins_when_its_trigger_fires(tmp_path):
    when = Events.ITERATION_COMPLETED(at=(3, 4, 9))  # at 4 a profile is under way
    engine = trained(Profile(tmp_path, when=when, wait=0, warmup=1, active=2))

    @engine.on(Events.ITERATION_STARTED)
    def mark(state):
        with torch.profiler.record_function(f"iteration {state.iteration}"):
            pass

    engine.run(BATCHES, max_epochs=1)
    seen = [{n for n in names(path) if n.startswith("iteration ")} for path in traces(tmp_path)]
    assert seen == [{"iteration 5", "iteration 6"}, {"iteration 11", "iteration 12"}]


@pytest.mark.parametrize("at", [1, 2, 4])
def test_an_exception_leaves_no_profiler_running(tmp_path, at, caplog):
    engine = trained(Profile(tmp_path, wait=1, warmup=1, active=5))
    engine.on(Events.ITERATION_STARTED(at=at))(lambda state: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.run(BATCHES, max_epochs=1)
    assert not is_running()
    assert engine.signals.watches == engine.evaluation.signals.watches == []
    assert len(traces(tmp_path)) == (at == 4)
    assert ("before an iteration was profiled" in caplog.text) == (at != 4)
    with torch.profiler.profile():  # another one can begin
        pass


def test_a_run_that_ends_early_writes_what_it_has(tmp_path):
    engine = trained(Profile(tmp_path, wait=1, warmup=1, active=5))
    engine.run(BATCHES, max_iterations=4)
    (path,) = traces(tmp_path)
    assert names(path)["aten::addmm"] == 2


def test_an_evaluation_is_in_the_trace_and_is_no_step(tmp_path):
    engine = trained(
        Validate(BATCHES[:2], when=Events.ITERATION_COMPLETED),
        Profile(tmp_path, wait=0, warmup=1, active=2),
    )
    engine.run(BATCHES, max_epochs=1)
    (path,) = traces(tmp_path)
    found = names(path)
    assert found["Events.ITERATION_COMPLETED Validate(val).evaluate"] == 2
    assert found["Events.ITERATION_COMPLETED Supervised.add_loss"] == 4
    assert len([name for name in found if name.startswith("ProfilerStep#")]) == 2


def test_profiling_changes_no_weight(tmp_path):
    def weights(*handlers):
        torch.manual_seed(0)
        engine = trained(*handlers)
        engine.run(BATCHES, max_epochs=1)
        return engine.objects["model"].weight

    assert torch.equal(weights(), weights(Profile(tmp_path)))


def test_it_is_attached_on_its_rank_only(tmp_path):
    assert Profile(tmp_path).rank == 0
    engine = Engine(lambda state, batch: None).add(Profile(tmp_path, rank=1))
    assert "Profile" not in str(engine.describe())
    engine = Engine(lambda state, batch: None).add(Profile(tmp_path, rank=None))
    assert "Profile" in str(engine.describe())


@pytest.mark.parametrize("wrong", [{"wait": -1}, {"active": 0}, {"repeat": 0}])
def test_a_schedule_that_profiles_nothing_is_refused(tmp_path, wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}="):
        Profile(tmp_path, **wrong)


def test_a_trace_that_cannot_be_written_ends_the_run_and_the_profiler(tmp_path):
    directory = tmp_path / "traces"
    engine = trained(Profile(directory, wait=0, warmup=1, active=1))
    engine.on(Events.ITERATION_COMPLETED(at=1))(lambda state: directory.rmdir())
    engine.on(Events.ITERATION_STARTED(at=2))(lambda state: directory.write_text("in the way"))
    with pytest.raises(RuntimeError, match="directory"):
        engine.run(BATCHES, max_epochs=1)
    assert not is_running()
    assert engine.signals.watches == []


def rows(table):
    """Handler, moment and calls of each line, and the numbers of seconds."""
    lines = [re.split(r"\s{2,}", line) for line in table.splitlines()[1:-1]]
    return {(name, moment): (int(calls), float(total)) for name, moment, calls, total, _ in lines}


def slow(state):
    time.sleep(0.02)


def quick(state):
    pass


def timed(*handlers):
    timing = TimeHandlers()
    engine = Engine(lambda state, batch: None).add(timing, *handlers)
    engine.on(Events.ITERATION_COMPLETED(every=2))(quick)
    engine.on(Events.EPOCH_COMPLETED(every=2) | Events.STARTED)(slow)
    return engine, timing


def test_calls_and_seconds_are_told_by_handler_and_moment_the_most_expensive_first():
    engine, timing = timed()
    state = engine.run("abcd", max_epochs=4)
    found = rows(timing.table(state))
    assert found["quick", "Events.ITERATION_COMPLETED"][0] == 8
    assert found["slow", "Events.STARTED"][0] == 1
    assert found["slow", "Events.EPOCH_COMPLETED"][0] == 2
    assert found["slow", "Events.EPOCH_COMPLETED"][1] >= 0.04
    seconds = [total for _, total in found.values()]
    assert seconds == sorted(seconds, reverse=True)


def test_the_table_is_logged_at_the_end_also_of_a_run_that_fails(caplog):
    engine, _ = timed()
    engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: 1 / 0)
    with caplog.at_level(logging.INFO, "camshaft"), pytest.raises(ZeroDivisionError):
        engine.run("abcd", max_epochs=1)
    (record,) = caplog.records
    assert "slow" in record.getMessage()
    assert re.search(r"all handlers: [\d.]+ s of [\d.]+ s \([\d.]+%\), by the host", caplog.text)
    assert engine.signals.watches == engine.evaluation.signals.watches == []


def test_handlers_inside_an_evaluation_have_rows_and_count_once_in_the_sum():
    engine, timing = timed(Validate("xy"))
    engine.evaluation.on(Events.ITERATION_COMPLETED)(slow)
    state = engine.run("ab", max_epochs=1)
    table = timing.table(state)
    found = rows(table)
    calls, inside = found["slow.2", "Events.ITERATION_COMPLETED"]
    assert calls == 2
    assert found["Validate(val).evaluate", "Events.EPOCH_COMPLETED"][1] >= inside >= 0.04
    total, run = map(float, re.search(r"([\d.]+) s of ([\d.]+) s", table).groups())
    outer = sum(seconds for (name, _), (_, seconds) in found.items() if name != "slow.2")
    assert total == pytest.approx(outer, abs=0.001 * len(found))  # as they are rounded
    assert total <= run


def test_two_runs_are_timed_apart_and_a_run_can_be_looked_at_while_it_goes_on():
    engine, timing = timed()
    seen = []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: seen.append(timing.table(state)))
    first, second = (engine.run("ab", max_epochs=n) for n in (1, 2))
    moment = ("quick", "Events.ITERATION_COMPLETED")
    assert rows(timing.table(first))[moment][0] == 1
    assert rows(timing.table(second))[moment][0] == 2
    assert [rows(table)[moment][0] for table in seen] == [1, 1, 2]


def test_a_run_that_was_not_timed_has_no_table():
    _, timing = timed()
    with pytest.raises(ValueError, match="was not timed"):
        timing.table(Engine(lambda state, batch: None).run("a", max_epochs=1))


def test_a_checkpoint_neither_holds_nor_needs_times(tmp_path):
    def run(*handlers, epochs):
        checkpoint = Checkpoint(tmp_path, resume=True, background=False)
        return (
            Engine(lambda state, batch: None)
            .add(checkpoint, *handlers)
            .run("ab", max_epochs=epochs)
        )

    run(epochs=1)
    assert run(TimeHandlers(), epochs=2).iteration == 4
    assert run(epochs=3).iteration == 6
