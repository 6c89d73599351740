"""A metric is a number by one function: an integer larger than all floats is infinite."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, Update
from camshaft.__main__ import main
from camshaft.engine.state import as_float
from camshaft.handlers import (
    CSV,
    Average,
    Checkpoint,
    ConsoleLines,
    EarlyStopping,
    History,
    Journal,
    JSONLines,
    Metrics,
    NonFiniteGuard,
    ProgressBar,
    RestoreBest,
    SpikeGuard,
    TensorBoard,
    Totals,
    best,
    checkpoints,
    latest,
)
from camshaft.handlers.tools.report import write_report

LARGE = 10**400
TOO_LONG = 10**5000
"""Python makes no text of it."""


@pytest.mark.parametrize(
    ("given", "expected"),
    [(LARGE, math.inf), (-TOO_LONG, -math.inf), (True, 1.0), (torch.tensor(0.5), 0.5)],
    ids=["400 digits", "5000 digits", "true", "a tensor"],
)
def test_a_number_beyond_all_floats_is_infinite(given, expected):
    assert as_float(given) == expected
    assert type(as_float(given)) is float


def script(directory, number, *handlers, **arguments):
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    update = Update(optimizer)

    def step(state, batch):
        state.metrics["large"] = number
        state.metrics["loss"] = loss = model(batch).pow(2).mean()
        state.metrics["loss"] = loss.detach()
        if state.training:
            update(state, loss)

    return Engine(step, update, *handlers, objects={"model": model, "optimizer": optimizer})


DATA = [torch.ones(1, 1)] * 3


@pytest.mark.parametrize("number", [LARGE, -LARGE, TOO_LONG], ids=["large", "low", "too long"])
def test_every_handler_that_reads_a_metric_takes_it(number, tmp_path, capsys):
    history = History(when=Events.ITERATION_COMPLETED)
    lines, often = [], Events.ITERATION_COMPLETED
    engine = script(
        tmp_path,
        number,
        EarlyStopping("large", patience=9),
        RestoreBest("large", when=Events.EPOCH_COMPLETED(last=True)),
        Average("large", weight=1),
        Metrics({"own": lambda *_: number}, select=lambda output: (1, 1), weight=1),
        Totals({"count": lambda batch: number}),
        JSONLines(tmp_path / "rows.jsonl", when=often),
        CSV(tmp_path / "rows.csv", when=often),
        TensorBoard(tmp_path, when=often),
        ConsoleLines(when=often, write=lines.append),
        ProgressBar("large"),
        Journal(tmp_path),
        history,
    )
    engine.run(DATA, max_epochs=2)
    expected = as_float(number)
    assert {row["large"] for row in history.rows if "large" in row} == {expected}
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {float(row["large"]) for row in rows if "large" in row} == {expected}
    assert f"large {expected:g}" in lines[-1]
    assert write_report([tmp_path], tmp_path / "page.html") == 0


@pytest.mark.parametrize("number", [LARGE, TOO_LONG], ids=["large", "too long"])
@pytest.mark.parametrize("guard", [NonFiniteGuard, SpikeGuard])
def test_guards_judge_it_as_a_loss_that_is_not_finite(guard, number, tmp_path):
    engine = script(tmp_path, number, guard("skip", metric="large", limit=1))
    with pytest.raises(FloatingPointError):
        engine.run(DATA, max_epochs=1)


def test_a_run_is_saved_and_resumed_with_it_and_by_it(tmp_path):
    def run(number, epochs, **arguments):
        keep = latest(2) | best(1, "large", mode="max")
        checkpoint = Checkpoint(tmp_path, keep=keep, **arguments)
        return script(tmp_path, number, checkpoint).run(DATA, max_epochs=epochs)

    run(LARGE, 1)
    state = run(1, 2, resume="best")
    assert state.metrics["large"] == 1
    assert [each.manifest.metrics["large"] for each in checkpoints(tmp_path)] == [math.inf, 1.0]
    assert checkpoints(tmp_path)[0].state_dict("model").keys() == {"weight", "bias"}
    again = run(1, 3, resume=str(checkpoints(tmp_path)[0].path))
    assert again.iteration == 9


def test_a_save_names_a_metric_of_more_digits_than_python_writes(tmp_path):
    engine = script(tmp_path, TOO_LONG, Checkpoint(tmp_path))
    with pytest.raises(TypeError, match=r"metrics\.values\.large is an integer of more than 4300"):
        engine.run(DATA, max_epochs=1)


def test_a_forged_checkpoint_with_it_is_broken_and_no_command_fails(tmp_path, capsys):
    def run(epochs, **arguments):
        keep = latest(2) | best(1, "loss")
        checkpoint = Checkpoint(tmp_path, keep=keep, **arguments)
        rows = JSONLines(tmp_path / "rows.jsonl")
        return script(tmp_path, 1, checkpoint, rows).run(DATA, max_epochs=epochs)

    run(2)
    newest = checkpoints(tmp_path)[-1]
    forged = replace(newest.manifest, metrics={"loss": -LARGE})
    (newest.path / "manifest.json").write_text(forged.to_json())
    assert [*checkpoints(tmp_path).broken] == [newest.path.name]
    assert write_report([tmp_path], tmp_path / "page.html") == 0
    for command in ("inspect", "verify"):
        assert main([command, str(tmp_path)]) == 1
        assert "metrics is" in capsys.readouterr().out
    assert run(3, resume="best").iteration == 9
