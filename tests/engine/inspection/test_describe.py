"""What an engine says it would do, as text and as a picture that is read back as XML."""

import runpy
from io import StringIO
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

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


DOCS = Path(__file__).parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    """The texts of a picture, from top to bottom and from left to right."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}text")
    placed = sorted((round(float(each.get("y")) / 6), float(each.get("x")), each) for each in found)
    return [each.text for _, _, each in placed]


def wired():
    engine = Engine(lambda state, batch: None)
    engine.on(Own.PING(every=2), stage=Stage.REPORT)(report)
    engine.evaluation.on(Events.EPOCH_COMPLETED(last=True))(report)
    return engine


def test_a_picture_shows_all_moments_in_their_order_and_events_of_ones_own():
    found = texts(wired().describe().svg())
    moments = [text for text in found if text in (*(event.name for event in Events), "Own.PING")]
    assert moments == [
        *("LOADING", "STARTED", "EPOCH_STARTED", "ITERATION_STARTED"),
        *("BACKWARD_COMPLETED", "GRADIENTS_READY", "STEP_COMPLETED", "STEP_SKIPPED", "Own.PING"),
        *("ITERATION_COMPLETED", "SAVING"),
        *("EPOCH_COMPLETED", "COMPLETED", "FAILED", "CLOSED"),
        *("EPOCH_COMPLETED", "COMPLETED"),  # of the evaluation: those with handlers
    ]


def test_a_handler_hangs_at_its_moment_with_stage_trigger_and_source():
    found = texts(wired().describe().svg())
    line = f"test_describe.py:{report.__code__.co_firstlineno}"
    begins = found.index("Own.PING")
    assert found[begins : begins + 5] == ["Own.PING", "REPORT", "report", "every=2", line]
    begins = found.index("evaluate")
    assert found[begins:] == [
        *("evaluate", "each epoch", "EPOCH_COMPLETED", "ACT", "report.2", line),
        *("COMPLETED", "ACT", "report.2", "last", line),
    ]


def test_boxes_lie_in_boxes():
    engine = Engine(lambda state, batch: None)
    root = ElementTree.fromstring(engine.describe().svg())
    boxes = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "box"]
    edges = [(float(box.get("y")), float(box.get("y")) + float(box.get("height"))) for box in boxes]
    assert len(edges) == 3  # epoch, batch, process
    for (top, bottom), (inner_top, inner_bottom) in pairwise(edges):
        assert top < inner_top < inner_bottom < bottom


def test_names_that_are_no_xml_are_drawn():
    engine = Engine(lambda state, batch: None)

    def handler(state):
        pass

    handler.__qualname__ = '<&"\x00\ud800>'
    engine.on(Events.STARTED)(handler)
    assert '<&"??>' in texts(engine.describe().svg())
    engine.describe().svg().encode()


def test_the_picture_in_the_docs_is_that_of_the_example():
    drawn = runpy.run_path(str(DOCS / "picture.py"))["draw"]()
    shown = (DOCS / "order.svg").read_text()
    without_lines = [[text.partition(".py:")[0] for text in texts(svg)] for svg in (shown, drawn)]
    assert without_lines[0] == without_lines[1], "draw it again: make picture"


def test_notebooks_show_the_picture():
    description = wired().describe()
    assert description._repr_svg_() == description.svg()
