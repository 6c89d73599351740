"""`engine.evaluate(loader, checkpoint=...)`: saved weights, for the length of an evaluation."""

import logging

import pytest
import torch

from camshaft import Events, supervised
from camshaft.handlers import EMA, Checkpoint, Export, RestoreBest, Validate, best, latest
from camshaft.handlers.checkpoint import checkpoints

TRAIN = [(torch.ones(4, 2), torch.ones(4, 1)), (torch.eye(4, 2), torch.zeros(4, 1))]
TEST = [(torch.ones(3, 2), torch.zeros(3, 1))]
EACH = {"when": Events.ITERATION_COMPLETED, "keep": latest(9) | best(1, "val/loss")}


def build(*handlers, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return supervised(model, optimizer, torch.nn.functional.mse_loss).add(*handlers), model


def weights(model):
    return {name: each.clone() for name, each in model.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def loss(engine, **arguments):
    return float(engine.evaluate(TEST, **arguments).metrics["loss"])


@pytest.fixture
def trained(tmp_path):
    """A directory, and by iteration what its checkpoints measure."""
    found = {}
    engine, _ = build(Validate(TEST, when=Events.ITERATION_COMPLETED), Checkpoint(tmp_path, **EACH))

    @engine.on(Events.ITERATION_COMPLETED)
    def note(state):
        found[state.iteration] = float(state.metrics["val/loss"])

    engine.run(TRAIN, max_epochs=3)
    assert min(found.values()) != found[6]
    return tmp_path, found


def test_a_new_process_measures_the_saved_weights_and_keeps_its_own(trained):
    directory, found = trained
    engine, model = build(Checkpoint(directory, resume=True, **EACH), seed=1)
    before, optimizer = weights(model), engine.objects["optimizer"].state_dict()
    assert loss(engine, checkpoint="latest") == found[6]
    assert loss(engine, checkpoint="best") == min(found.values())
    assert loss(engine, checkpoint=directory) == found[6]
    assert loss(engine, checkpoint=str(checkpoints(directory)[2].path)) == found[3]
    assert equal(weights(model), before)
    assert engine.objects["optimizer"].state_dict() == optimizer
    assert engine.run(TRAIN, max_epochs=3).iteration == 6
    assert loss(engine) == found[6]


def test_an_engine_that_only_evaluates_reads_checkpoints_and_exports(trained, tmp_path):
    directory, found = trained
    torch.manual_seed(1)
    model = build()[1]
    engine = supervised(model, loss_fn=torch.nn.functional.mse_loss)
    with pytest.raises(ValueError, match=r"checkpoint='latest': needs a Checkpoint.*engine.add"):
        engine.evaluate(TEST, checkpoint="latest")
    engine.add(Checkpoint(directory))
    assert loss(engine, checkpoint="latest") == found[6]
    with pytest.raises(ValueError, match=r"checkpoint='best' needs one best"):
        engine.evaluate(TEST, checkpoint="best")
    exporting, _ = build(Export(tmp_path / "export"))
    exporting.run(TRAIN, max_epochs=1)
    assert loss(engine, checkpoint=tmp_path / "export") == loss(exporting)
    with pytest.raises(FileNotFoundError, match="holds no checkpoint to evaluate"):
        engine.evaluate(TEST, checkpoint=tmp_path / "nothing")


def test_a_checkpoint_that_does_not_fit_is_an_error_and_changes_nothing(trained):
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 1))
    engine = supervised(model, loss_fn=torch.nn.functional.mse_loss).add(Checkpoint(trained[0]))
    before = weights(model)
    with pytest.raises(ValueError, match=r"(?s)does not fit this script:.*weights of 'model'"):
        engine.evaluate(TEST, checkpoint="latest")
    assert equal(weights(model), before)


def test_weights_are_put_back_after_an_error_and_training_is_as_without(trained):
    directory, found = trained
    ends = []
    for measures in (False, True):
        engine, model = build(Checkpoint(directory), seed=2)

        @engine.on(Events.ITERATION_COMPLETED)
        def measure(state, measures=measures):
            if measures:
                engine = state.engine
                assert float(engine.evaluate(TEST, checkpoint="latest").metrics["loss"]) == found[6]
                with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                    engine.evaluate([torch.ones(1)], checkpoint="latest")

        engine.bare(lambda each: each.name == "measure").run(TRAIN, max_epochs=2)
        ends.append(weights(model))
    assert equal(*ends)


def test_averages_and_the_best_weights_of_a_checkpoint_are_measured_too(tmp_path):
    def made(seed):
        handlers = EMA(0.5), Validate(TEST), RestoreBest("val/loss"), Checkpoint(tmp_path)
        return build(*handlers, seed=seed)

    engine, _ = made(0)
    engine.run(TRAIN, max_epochs=3)
    expected = loss(engine, weights="ema")
    again, model = made(1)
    before = weights(model)
    assert loss(again, checkpoint="latest", weights="ema") == expected
    assert equal(weights(model), before)
    plain, _ = build(Checkpoint(tmp_path), seed=1)
    assert loss(plain, checkpoint="latest") == loss(again, checkpoint="latest")


def test_an_evaluation_of_weights_that_nothing_has_loaded_is_told_of_once(trained, caplog):
    engine, _ = build(Checkpoint(trained[0], resume=True, **EACH), seed=1)
    with caplog.at_level(logging.WARNING, "camshaft"):
        engine.evaluate(TEST)
        engine.evaluate(TEST)
    assert [each.message.partition(":")[0] for each in caplog.records] == [
        "the evaluation measures the weights that the script made"
    ]
    assert "checkpoint='latest'" in caplog.text


@pytest.mark.parametrize("what", ["asked", "loaded by hand", "run", "new directory", "no resume"])
def test_right_evaluations_are_not_told_of(what, trained, tmp_path, caplog):
    directory = tmp_path / "new" if what == "new directory" else trained[0]
    resume = what != "no resume"
    engine, model = build(Checkpoint(directory, resume=resume, **EACH), Validate(TEST), seed=1)
    if what == "loaded by hand":
        model.load_state_dict(checkpoints(directory).latest().state_dict("model"))
    if what == "run":
        engine.run(TRAIN, max_epochs=4)
    caplog.clear()
    engine.evaluate(TEST, checkpoint="latest" if what == "asked" else None)
    assert caplog.records == []
