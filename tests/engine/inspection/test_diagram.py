"""The picture of an engine, read back as XML."""

import runpy
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from camshaft import Engine, EventEnum, Events, Stage

DOCS = Path(__file__).parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


class Own(EventEnum):
    PING = "ping"


def report(state):
    pass


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
    line = f"test_diagram.py:{report.__code__.co_firstlineno}"
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
