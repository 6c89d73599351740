"""What an engine says it would do, as text and as a picture that is read back as XML."""

import re
import runpy
from dataclasses import dataclass
from io import StringIO
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from camshaft import Engine, EventEnum, Events, Stage, supervised
from camshaft.handlers import (
    EMA,
    Average,
    Checkpoint,
    ClipGradNorm,
    EarlyStopping,
    Freeze,
    GarbageCollection,
    GradNorm,
    Journal,
    JSONLines,
    NonFiniteGuard,
    Profile,
    ProgressBar,
    RankLogs,
    StopOnSignal,
    SystemUse,
    Throughput,
    TimeHandlers,
    Totals,
    Validate,
)


class Own(EventEnum):
    PING = "ping"


def report(state):
    pass


def train_step(state, batch):
    pass


def line_of(function):
    name = function.__code__.co_filename.rpartition("/")[2]
    return f"{name}:{function.__code__.co_firstlineno}"


def test_the_text_shows_who_is_called_when_in_boxes_and_the_users_own_stand_out():
    engine = Engine(train_step)
    engine.on(Events.EPOCH_COMPLETED(last=True), stage=Stage.REPORT)(report)
    engine.add(Validate([1]), EarlyStopping("val/loss"))
    engine.on(Own.PING(every=2))(report)
    own = line_of(report)
    lines = f"""
run
 ┌ each epoch
 │ ┌ each batch
 │ │ ┌ train_step      ▸                                           {line_of(train_step)}
 │ │ │ Own.PING        ▸ ACT     report.2                every=2 {own}
 │ │ └
 │ └
 │ EPOCH_COMPLETED       MEASURE Validate(val)
 │                       ACT     EarlyStopping(val/loss)
 │                     ▸ REPORT  report                          {own}
 └
 COMPLETED               MEASURE Validate(val)           last
                       ▸ REPORT  report                  last    {own}
"""
    assert re.sub(" +", " ", str(engine.describe())) == re.sub(" +", " ", lines).strip()


def test_the_text_in_the_docs_is_that_of_the_script_there():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss, accumulate=2)
    engine.add(ClipGradNorm(1.0), EarlyStopping("val/loss"), Validate([1]))
    engine.on(Events.STEP_COMPLETED(every=2), stage=Stage.REPORT)(report)
    page = (DOCS / "guides" / "order.md").read_text()
    shown = next(block for block in page.split("```") if block.startswith("\nrun\n"))
    texts = [shown.strip(), str(engine.describe())]
    plain = [re.sub(r"\w+\.py:\d+|^\d+| (?= )|\s+$", "", each, flags=re.M) for each in texts]
    assert plain[0] == plain[1]


def test_all_shows_the_calls_that_fold_by_their_methods_and_where_they_are_written(tmp_path):
    engine = Engine(train_step, Checkpoint(tmp_path))
    folded, everything = str(engine.describe()), str(engine.describe(all=True))
    assert [row.handler for row in engine.describe().shown[0][1]] == ["Checkpoint", "Checkpoint"]
    assert folded.endswith(
        "\n5 more calls, by which handlers begin, count, check and end: describe(all=True)"
    )
    calls = (Checkpoint.open, Checkpoint.begin, Checkpoint.save, Checkpoint.close)
    for each in (*calls, Checkpoint.ask):
        assert f"Checkpoint.{each.__name__}" not in folded
        assert re.search(rf"Checkpoint.{each.__name__} .*{line_of(each)}", everything)
    assert "more call" not in everything


@dataclass(frozen=True)
class Mine:
    """A handler of the user's."""

    def attach(self, engine):
        engine.on(Events.STARTED)(self.begin)
        engine.on(Events.ITERATION_COMPLETED(every=3))(self.look)

    def begin(self, state):
        pass

    def look(self, state):
        pass


class Milder(EarlyStopping):
    """A handler of Camshaft's that the user has changed."""


def shown(*handlers, **options):
    description = Engine(train_step, *handlers).describe(**options)
    return [(row.event.name, row.handler, row.is_own) for row in description.shown[0][1]]


def test_of_handlers_that_the_user_has_written_nothing_is_folded():
    assert shown(Mine(), Milder("val/loss")) == [
        ("STARTED", "Mine.begin", True),
        ("ITERATION_COMPLETED", "Mine.look", True),
        ("EPOCH_COMPLETED", "Milder(val/loss).look", True),
    ]


def test_a_handler_is_shown_by_its_when_or_in_the_cycle_or_else_where_it_first_is():
    assert shown(SystemUse(when=Events.STARTED), StopOnSignal(), ProgressBar()) == [
        ("LOADING", "StopOnSignal", False),
        ("STARTED", "SystemUse", False),
        ("ITERATION_COMPLETED", "ProgressBar", False),
        ("EPOCH_COMPLETED", "ProgressBar", False),
    ]
    assert shown(Validate([1], when=Events.STARTED | Events.EPOCH_COMPLETED)) == [
        ("STARTED", "Validate(val)", False),
        ("EPOCH_COMPLETED", "Validate(val)", False),
    ]


def test_no_handler_is_lost_by_folding(tmp_path):
    handlers = [
        *(ClipGradNorm(1.0), NonFiniteGuard(), Average("loss"), Freeze("a.*"), GradNorm()),
        *(EMA(0.9), Journal(tmp_path), JSONLines(tmp_path / "rows.jsonl"), Profile(tmp_path)),
        *(GarbageCollection(), RankLogs(tmp_path), Throughput(), TimeHandlers(), Totals({})),
    ]
    engine = Engine(train_step, *handlers, objects={"model": torch.nn.Linear(1, 1)})
    names = {row.handler for row in engine.describe().shown[0][1]}
    assert names == set(engine.handlers)


def test_an_engine_without_handlers_shows_its_process_function():
    engine = Engine(train_step)
    assert str(engine.describe()).splitlines()[3].split() == [
        *("│", "│", "┌", "train_step", "▸", line_of(train_step))
    ]


def test_the_handlers_of_an_evaluation_are_described_too():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss).add(ClipGradNorm(1.0))
    assert "ClipGradNorm" in str(engine.describe())
    assert "evaluate" not in str(engine.describe())  # all of it folds
    engine.evaluation.on(Events.COMPLETED)(report)
    training, evaluation = str(engine.describe(all=True)).split("\nevaluate\n")
    assert "┌ Supervised.train " in training
    assert "┌ Supervised.evaluate " in evaluation
    assert re.search("ITERATION_COMPLETED +MEASURE +Supervised.add_loss", evaluation)
    assert "report" in str(engine.describe()).split("\nevaluate\n")[1]


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


def test_rich_and_the_picture_show_the_same_as_the_text():
    rich = pytest.importorskip("rich.console")
    engine = Engine(train_step, ClipGradNorm(1.0), ProgressBar())
    engine.on(Events.EPOCH_COMPLETED(every=2), stage=Stage.REPORT)(report)
    engine.on(Own.PING)(lambda state: None)
    for description in (engine.describe(), engine.describe(all=True)):
        console = rich.Console(file=StringIO(), width=150)
        console.print(description)
        head, *words = console.file.getvalue().replace("─", "").split("source")[1:]
        text = str(description)
        assert (head + "source".join(words)).split() == text.split()
        drawn = " ".join(texts(description.svg()))
        missing = {word for word in text.split() if word not in drawn} - set("┌│└▸")
        assert missing == set()


DOCS = Path(__file__).parents[3] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
CHARACTER = 7.2
"""Pixels: the width of a character of 12 pixels in these fonts."""


def texts(svg):
    """The texts of a picture, from top to bottom and from left to right."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}text")
    placed = sorted((round(float(each.get("y")) / 6), float(each.get("x")), each) for each in found)
    return [each.text for _, _, each in placed]


def wired():
    engine = Engine(train_step)
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
    line = line_of(report)
    begins = found.index("Own.PING")
    assert found[begins : begins + 5] == ["Own.PING", "REPORT", "report", "every=2", line]
    begins = found.index("evaluate")
    assert found[begins:] == [
        *("evaluate", "each epoch", "each batch", "train_step", line_of(train_step)),
        *("EPOCH_COMPLETED", "ACT", "report.2", line),
        *("COMPLETED", "ACT", "report.2", "last", line),
    ]


def test_what_the_user_has_written_stands_out_in_the_picture():
    engine = Engine(train_step, ClipGradNorm(1.0))
    engine.on(Events.GRADIENTS_READY)(report)
    root = ElementTree.fromstring(engine.describe().svg())
    bold = [each.text for each in root.iter(f"{SVG}text") if each.get("class") == "own"]
    assert bold == ["train_step", "report"]


def test_boxes_lie_in_boxes():
    engine = Engine(lambda state, batch: None)
    root = ElementTree.fromstring(engine.describe().svg())
    boxes = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "box"]
    edges = [(float(box.get("y")), float(box.get("y")) + float(box.get("height"))) for box in boxes]
    assert len(edges) == 3  # epoch, batch, process
    for (top, bottom), (inner_top, inner_bottom) in pairwise(edges):
        assert top < inner_top < inner_bottom < bottom


def with_handlers_that_have_no_source():
    engine = Engine(train_step)
    engine.add(EarlyStopping("loss"))
    return engine


@pytest.mark.parametrize("engine_of", [wired, with_handlers_that_have_no_source])
def test_no_text_lies_on_another_one_and_all_lie_in_the_picture(engine_of):
    root = ElementTree.fromstring(engine_of().describe().svg())
    right, bottom = map(float, root.get("viewBox").split()[2:])
    rooms = []
    for each in root.iter(f"{SVG}text"):
        x, y, width = float(each.get("x")), float(each.get("y")), len(each.text) * CHARACTER
        left = x - width / 2 if each.get("text-anchor") == "middle" else x
        assert left > 0 < y - 9, each.text
        assert left + width < right, each.text
        assert y + 3 < bottom, each.text
        rooms.append((left, left + width, y - 9, y + 3, each.text))
    for (left, right, top, bottom, one), other in combinations(rooms, 2):
        is_apart = right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
        assert is_apart, (one, other[-1])


def test_names_that_are_no_xml_are_drawn():
    engine = Engine(lambda state, batch: None)

    def handler(state):
        pass

    handler.__qualname__ = '<&"\x00\ud800>'
    engine.on(Events.STARTED)(handler)
    assert '<&"??>' in texts(engine.describe().svg())
    engine.describe().svg().encode()


PICTURES = runpy.run_path(str(DOCS / "picture.py"))["PICTURES"]


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_in_the_docs_are_those_of_the_scripts(name):
    drawn, shown = PICTURES[name](), (DOCS.parent / name).read_text()
    without_lines = [[text.partition(".py:")[0] for text in texts(svg)] for svg in (shown, drawn)]
    assert without_lines[0] == without_lines[1], "draw it again: make picture"


def test_notebooks_show_the_picture_of_a_description_and_of_an_engine():
    engine = wired()
    assert engine._repr_svg_() == engine.describe()._repr_svg_() == engine.describe().svg()
