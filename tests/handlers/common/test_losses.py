"""A loss that is not finite is told of where it is read anyway."""

import io
import math

import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers import (
    Average,
    ConsoleLines,
    EarlyStopping,
    JSONLines,
    NonFiniteGuard,
    ProgressBar,
    Validate,
)

TOLD = "no handler keeps such steps from the weights: NonFiniteGuard() ends the run"


def train(*handlers, values=(1.0, math.nan, math.nan), name="loss", **options):
    """A run whose process function writes these values as a metric."""

    def step(state, batch):
        state.metrics[name] = torch.tensor(batch)

    return Engine(step, *handlers).run(values, max_epochs=2, **options)


EACH = Events.ITERATION_COMPLETED


@pytest.mark.parametrize(
    "reader",
    [
        lambda path: ProgressBar(file=io.StringIO()),
        lambda path: ConsoleLines(when=EACH, write=lambda line: None),
        lambda path: JSONLines(path / "rows.jsonl", when=EACH),
        lambda path: EarlyStopping("loss", when=EACH, patience=9),
    ],
    ids=["ProgressBar", "ConsoleLines", "JSONLines", "EarlyStopping"],
)
def test_whoever_reads_it_first_tells_it_once(reader, tmp_path, caplog):
    train(reader(tmp_path))
    assert caplog.text.count(TOLD) == 1
    assert "the metric 'loss' is nan in iteration" in caplog.text


def test_it_names_the_iteration_and_the_value(caplog):
    train(ConsoleLines(when=EACH, write=lambda line: None), values=(1.0, math.inf))
    assert "the metric 'loss' is inf in iteration 2, and" in caplog.text


def test_two_readers_tell_it_once(caplog):
    console = ConsoleLines(when=EACH, write=lambda line: None)
    train(console, ProgressBar(file=io.StringIO()))
    assert caplog.text.count(TOLD) == 1


def test_a_mean_that_became_nan_is_a_loss_too(caplog):
    train(Average("loss", weight=1), ConsoleLines("loss/epoch", write=lambda line: None))
    assert "the metric 'loss/epoch' is nan" in caplog.text


def test_a_loss_that_is_read_by_nobody_is_not_read_for_this(caplog):
    train()
    assert caplog.text == ""


@pytest.mark.parametrize("name", ["accuracy", "ratio", "best_loss", "glossary", "closs"])
def test_other_metrics_may_be_nan(name, caplog):
    train(ConsoleLines(when=EACH, write=lambda line: None), name=name)
    assert caplog.text == ""


@pytest.mark.parametrize("name", ["train_loss", "val/loss", "loss/generator", "Loss", "d_loss"])
def test_a_loss_is_known_by_its_name(name, caplog):
    train(ConsoleLines(when=EACH, write=lambda line: None), name=name)
    assert caplog.text.count(TOLD) == 1


def test_with_a_guard_or_a_handler_of_ones_own_in_its_place_nothing_is_said(caplog):
    train(ConsoleLines(when=EACH, write=lambda line: None), NonFiniteGuard("skip"), name="loss")
    assert TOLD not in caplog.text


def test_the_next_run_tells_it_again_and_an_evaluation_does_not(caplog):
    def step(state, batch):
        state.metrics["loss"] = math.nan if state.training else 1.0

    engine = Engine(step, ConsoleLines(when=EACH, write=lambda line: None))
    engine.add(Validate([1]))
    for _ in range(2):
        engine.run([1], max_epochs=1)
    assert caplog.text.count(TOLD) == 2
