"""Profiles of real runs, read back from their traces."""

import json
import logging

import pytest
import torch

from camshaft import Engine, Events, supervised
from camshaft.handlers import ClipGradNorm, Profile, Validate

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
    engine = trained(Profile(tmp_path, when, wait=0, warmup=1, active=2))

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
    assert "Profile.step" in str(engine.describe())


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
