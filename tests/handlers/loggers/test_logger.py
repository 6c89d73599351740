"""Loggers of one's own, and how they are wired."""

import json
import math
import sys

import pytest
import torch

from camshaft import Engine, Events, supervised
from camshaft.handlers import LRSchedule
from camshaft.handlers.loggers import CSV, JSONLines, Logger, TensorBoard
from camshaft.handlers.loggers.logger import flat_hparams, need
from camshaft.handlers.schedules import cosine, warmup

EACH = Events.ITERATION_COMPLETED


class Board:
    def __init__(self, start):
        pass

    def write(self, row):
        pass

    def sync(self):
        pass

    def close(self):
        pass


def test_a_logger_is_called_after_what_it_opens_or_as_one_says():
    engine = Engine(lambda state, batch: None, Logger(Board), Logger(Board, name="mine"))
    assert list(engine.handlers) == ["Logger(Board)", "Logger(mine)"]


def test_what_opens_nothing_is_refused():
    with pytest.raises(TypeError, match="needs what makes a writer"):
        Logger("tensorboard")


@pytest.mark.parametrize("kind", [JSONLines, CSV, TensorBoard])
def test_the_table_of_handlers_says_what_a_logger_does_and_when(kind, tmp_path):
    engine = Engine(lambda state, batch: None, kind(tmp_path / "rows", when=EACH(every=7)))
    table = " ".join(str(engine.describe()).split())
    for line in (
        f"REPORT {kind.__name__}.open_log",
        f"REPORT {kind.__name__}.write",
        "Events.ITERATION_COMPLETED(every=7)",
        f"MEASURE {kind.__name__}.sync",
        f"REPORT {kind.__name__}.close",
        "logger.py:",
    ):
        assert line in table


def test_a_logger_is_of_rank_0_alone(tmp_path):
    assert Logger(Board).rank == JSONLines(tmp_path / "rows").rank == 0


def test_what_no_logger_shows_stays_where_it_is(tmp_path):
    engine = Engine(lambda state, batch: state.metrics.update(thing=object()))
    engine.add(Logger(Board, when=EACH))
    assert engine.run([1], max_epochs=1).memory.saved["Logger(Board)"].number == 0


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_two_loggers_do_not_write_to_one_file(kind, tmp_path):
    with pytest.raises(ValueError, match="JSONLines writes to .* already; give this logger a file"):
        Engine(lambda state, batch: None, JSONLines(tmp_path / "rows"), kind(tmp_path / "rows"))


def test_only_clocks_of_the_users_own_are_in_a_row(tmp_path):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(LRSchedule(warmup(1).then(cosine())), JSONLines(tmp_path / "rows", when=EACH))
    engine.run([(torch.ones(1, 1), torch.ones(1, 1))] * 3, max_epochs=1)
    row = json.loads((tmp_path / "rows").read_text().splitlines()[-1])
    assert set(row) == {"iteration", "step", "epoch", "loss", "lr"}


def test_a_library_that_is_not_there_is_named_with_what_to_install():
    with pytest.raises(ModuleNotFoundError) as caught:
        need("no_such_library", "Board", "board")
    assert str(caught.value) == 'Board needs no_such_library: pip install "camshaft[board]"'


def test_a_library_that_cannot_be_imported_counts_as_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ModuleNotFoundError, match="Board needs tqdm"):
        need("tqdm", "Board", "board")


def test_looking_for_a_library_imports_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    need("this", "Board", "board")
    assert "this" not in sys.modules


def test_nested_names_of_hyper_parameters_are_joined():
    assert flat_hparams({"a": {"b": {"c": 1}}, "d": 2}) == {"a/b/c": 1, "d": 2}


def test_hyper_parameters_that_are_numbers_truths_and_texts_stay_so():
    given = {"bool": True, "int": 1, "float": math.inf, "str": "x"}
    assert {name: type(value) for name, value in flat_hparams(given).items()} == {
        "bool": bool,
        "int": int,
        "float": float,
        "str": str,
    }


def test_all_other_hyper_parameters_become_text():
    assert flat_hparams({"a": None, "b": [1, 2], "c": torch.float32}) == {
        "a": "None",
        "b": "[1, 2]",
        "c": "torch.float32",
    }
