"""Exports: one object's weights, with a policy of their own."""

import logging

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Export, best, latest
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.directory import verify_files


def scoring(scores, *handlers):
    """An engine whose weight is the number of the epoch, and whose score is taken from a list."""
    model = nn.Linear(1, 1, bias=False)
    objects = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
    engine = Engine(lambda state, batch: None, objects=objects)

    @engine.on(Events.EPOCH_COMPLETED)
    def score(state):
        model.weight.data.fill_(float(state.epoch))
        state.metrics["score"] = scores[state.epoch - 1]

    return engine.add(*handlers)


def weights(directory):
    found = [load_file(each.path / "model.safetensors") for each in checkpoints(directory)]
    return [each["weight"].item() for each in found]


def test_the_weights_alone_are_written_and_load_into_the_model(tmp_path):
    scoring([0.1], Export(tmp_path)).run("ab", max_epochs=1)
    (saved,) = checkpoints(tmp_path)
    verify_files(saved)
    names = sorted(path.name for path in saved.path.iterdir())
    assert names == ["manifest.json", "model.safetensors", "state.json"]
    model = nn.Linear(1, 1, bias=False)
    model.load_state_dict(load_file(saved.path / "model.safetensors"))
    assert model.weight.item() == 1.0
    assert saved.manifest.metrics == {"score": 0.1}


def test_the_best_stands_beside_the_checkpoints_and_nothing_else_does(tmp_path):
    scores = [0.5, 0.9, 0.6, 0.95, 0.1]
    handlers = (
        Export(tmp_path / "best", keep=best(1, "score", mode="max")),
        Checkpoint(tmp_path / "run"),
    )
    scoring(scores, *handlers).run("ab", max_epochs=5)
    assert weights(tmp_path / "best") == [4.0]
    assert weights(tmp_path / "run") == [4.0, 5.0]


def test_claims_combine_and_another_trigger_can_be_given(tmp_path):
    export = Export(tmp_path, when=Events.ITERATION_COMPLETED(every=3), keep=latest(2))
    scoring([0.1] * 5, export).run("ab", max_epochs=5)
    assert [each.manifest.iteration for each in checkpoints(tmp_path)] == [6, 9]


def test_an_export_is_asked_for_by_its_own_trigger_alone(tmp_path):
    engine = scoring([0.1], Export(tmp_path / "model"), Checkpoint(tmp_path / "run"))
    engine.on(Events.ITERATION_COMPLETED(at=1))(lambda state: state.save("the user asked"))
    engine.run("ab", max_epochs=1)
    assert [each.manifest.iteration for each in checkpoints(tmp_path / "run")] == [1, 2]
    assert [each.manifest.iteration for each in checkpoints(tmp_path / "model")] == [2]


def test_no_run_goes_on_from_an_export(tmp_path):
    scoring([0.1], Export(tmp_path)).run("ab", max_epochs=1)
    engine = scoring([0.1], Checkpoint(tmp_path, resume=True))
    with pytest.raises(ValueError, match="it holds exported weights alone"):
        engine.run("ab", max_epochs=1)


def test_an_object_that_is_not_there_is_refused_before_the_run(tmp_path):
    engine = scoring([0.1], Export(tmp_path, object="ema"))
    with pytest.raises(ValueError, match=r"Export\(object='ema'\).*: 'model', 'optimizer'"):
        engine.run("ab", max_epochs=1)


def test_another_object_can_be_named(tmp_path):
    scoring([0.1], Export(tmp_path, object="optimizer")).run("ab", max_epochs=1)
    verify_files(checkpoints(tmp_path)[0])


def test_one_directory_cannot_be_for_exports_and_checkpoints(tmp_path):
    with pytest.raises(BlockingIOError, match="choose another directory"):
        scoring([0.1], Checkpoint(tmp_path), Export(tmp_path)).run("ab", max_epochs=1)


def test_exports_of_an_earlier_run_are_told_of(tmp_path, caplog):
    scoring([0.1], Export(tmp_path)).run("ab", max_epochs=1)
    with caplog.at_level(logging.WARNING, "camshaft"):
        scoring([0.1], Export(tmp_path)).run("ab", max_epochs=1)
    assert "holds exports of an earlier run, such as iteration-0000000002" in caplog.text


def test_handlers_can_wait_for_an_export(tmp_path):
    export = Export(tmp_path, when=Events.ITERATION_COMPLETED(at=1))
    engine, seen = scoring([0.1], export), []

    @engine.on(Events.EPOCH_COMPLETED)
    def look(state):
        export.wait(state)
        seen.extend(checkpoints(tmp_path))

    engine.run("ab", max_epochs=1)
    assert len(seen) == 1


KILLED_AT_THE_LAST_CHECKPOINT = """
import os, signal, sys, time
import torch
from torch import nn
from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, Export

kill, background = sys.argv[1] == "kill", sys.argv[2] == "True"

def hear(event, arguments):
    names = str(arguments[:2]) if event in ("open", "os.rename") else ""
    if event == "open" and "exports" in names and "model.safetensors" in names:
        time.sleep(0.1)  # the checkpoint could be there long before
    if kill and event == "os.rename" and "run/LATEST" in names and epochs == [1, 2, 3]:
        os.kill(os.getpid(), signal.SIGKILL)

model, epochs = nn.Linear(1, 1), []
engine = Engine(lambda state, batch: None, objects={"model": model})
engine.on(Events.EPOCH_COMPLETED)(lambda state: epochs.append(state.epoch))
engine.add(Checkpoint("run", resume=True), Export("exports", background=background))
sys.addaudithook(hear)
engine.run("ab", max_epochs=3)
"""


@pytest.mark.quick(background=1)
@pytest.mark.parametrize("background", [True, False])
def test_a_kill_at_the_last_checkpoint_does_not_lose_the_last_export(
    processes, tmp_path, background
):
    script = tmp_path / "train.py"
    script.write_text(KILLED_AT_THE_LAST_CHECKPOINT)
    processes.run(script, "kill", background, cwd=tmp_path, code=-9)
    processes.run(script, "on", background, cwd=tmp_path)
    (last,) = checkpoints(tmp_path / "exports")
    assert last.manifest.epoch == 3
