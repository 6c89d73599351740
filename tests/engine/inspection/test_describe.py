"""What an engine says it would do."""

from io import StringIO

import pytest
import torch

from camshaft import Engine, EventEnum, Events, Stage, supervised
from camshaft.handlers import ClipGradNorm, EarlyStopping, Validate


class Own(EventEnum):
    PING = "ping"


def report(state):
    pass


def test_describe_lists_every_moment_with_handlers_stages_triggers_and_sources():
    engine = Engine(lambda state, batch: None)
    engine.on(Events.EPOCH_COMPLETED(last=True), stage=Stage.REPORT)(report)
    engine.add(Validate([1]), EarlyStopping("val/loss"))
    engine.on(Own.PING(every=2))(report)
    line = report.__code__.co_firstlineno
    lines = {
        name: handler.__code__.co_firstlineno
        for name, handler in {"v": Validate.evaluate, "e": EarlyStopping.look}.items()
    }
    assert str(engine.describe()) == (
        "Events.EPOCH_COMPLETED\n"
        "  MEASURE  Validate(val).evaluate        Events.EPOCH_COMPLETED(last=True)  "
        f"validate.py:{lines['v']}\n"
        "  ACT      EarlyStopping(val/loss).look  Events.EPOCH_COMPLETED             "
        f"early_stopping.py:{lines['e']}\n"
        "  REPORT   report                        Events.EPOCH_COMPLETED(last=True)  "
        f"test_describe.py:{line}\n"
        "Events.COMPLETED\n"
        "  MEASURE  Validate(val).evaluate        Events.EPOCH_COMPLETED(last=True)  "
        f"validate.py:{lines['v']}\n"
        "  REPORT   report                        Events.EPOCH_COMPLETED(last=True)  "
        f"test_describe.py:{line}\n"
        "Own.PING\n"
        "  ACT      report.2                      Own.PING(every=2)                  "
        f"test_describe.py:{line}"
    )


def test_an_engine_without_handlers_says_so():
    assert str(Engine(lambda state, batch: None).describe()) == "no handlers"


def test_the_handlers_of_an_evaluation_are_described_too():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss).add(ClipGradNorm(1.0))
    assert "ClipGradNorm.clip" in str(engine.describe())
    assert "Supervised.mean_loss" in str(engine.evaluation.describe())
    lines = str(engine.describe()).splitlines()
    begins = lines.index("evaluation, Events.ITERATION_COMPLETED")
    assert "Supervised.add_loss" in lines[begins + 1]


def test_looking_makes_no_evaluation_and_no_signal():
    engine = Engine(lambda state, batch: None)
    engine.describe()
    assert "evaluation" not in vars(engine)
    assert engine.signals == {}


def test_a_receiver_of_a_signal_is_described_too():
    engine = Engine(lambda state, batch: None)
    with engine.signal(Events.STARTED).connected_to(report):
        (row,) = engine.describe().rows
    assert (row.handler, row.stage, row.when) == ("report", Stage.ACT, "")


@pytest.mark.parametrize(
    ("trigger", "event", "when"),
    [
        (Events.EPOCH_COMPLETED(every=2, last=True), Events.EPOCH_COMPLETED, "every=2"),
        (Events.EPOCH_COMPLETED(every=2, last=True), Events.COMPLETED, "last"),
        (
            Events.EPOCH_COMPLETED(at=1) | Events.EPOCH_COMPLETED(at=3),
            Events.EPOCH_COMPLETED,
            "at=(1,) | at=(3,)",
        ),
        (Events.EPOCH_COMPLETED(at=1) | Events.STARTED, Events.STARTED, ""),
    ],
)
def test_each_moment_shows_its_own_part_of_the_trigger(trigger, event, when):
    engine = Engine(lambda state, batch: None)
    engine.on(trigger)(report)
    assert [row.when for row in engine.describe().rows if row.event is event] == [when]


def test_rich_prints_the_same_handlers_as_the_text():
    rich = pytest.importorskip("rich.console")
    engine = Engine(lambda state, batch: None)
    engine.on(Events.EPOCH_COMPLETED(every=2), stage=Stage.REPORT)(report)
    engine.on(Own.PING)(lambda state: None)
    console = rich.Console(file=StringIO(), width=100)
    console.print(engine.describe())
    words = console.file.getvalue().split()
    assert words[:4] == ["stage", "handler", "when", "source"]
    line = report.__code__.co_firstlineno
    begins = words.index("Events.EPOCH_COMPLETED")
    expected = ["REPORT", "report", "every=2", f"test_describe.py:{line}", "Own.PING"]
    assert words[begins + 1 : begins + 6] == expected
