"""Texts, curves and confusion matrices: from a metric to a row, and from the row to the page."""

import html
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import binary_precision_recall_curve

import camshaft
from camshaft import Engine, Events
from camshaft.handlers import ImageFiles, JSONLines
from camshaft.handlers.loggers import ConfusionMatrix, Curve, Image, PRCurve, Text
from camshaft.handlers.tools.report import NothingToReportError
from camshaft.handlers.tools.report.cards import HEADINGS, cards_of, media_figures
from camshaft.handlers.tools.report.facts.exhibits import Exhibit
from camshaft.handlers.tools.report.facts.metric_files import MetricFiles
from camshaft.handlers.tools.report.facts.pictures import Picture, images_in, to_show
from camshaft.handlers.tools.report.facts.run_facts import RunDirectory, runs_in
from camshaft.handlers.tools.report.page import Page

EACH = Events.ITERATION_COMPLETED


def run_of(directory, make, count=1):
    """A run that writes these metrics in each iteration."""
    engine = Engine(lambda state, batch: state.metrics.update(make(state.iteration)))
    engine.add(JSONLines(directory / "rows.jsonl", when=EACH)).run(range(count), max_epochs=1)
    return directory


def facts_of(*directories):
    runs = runs_in([*directories])
    for run in runs:
        run.look()
    return [run.facts() for run in runs]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=40))
def test_precision_and_recall_are_those_of_torchmetrics(samples):
    targets = torch.tensor([target for target, _ in samples])
    scores = torch.tensor([score / 10 for _, score in samples])
    if not targets.any():
        return
    precision, recall, _ = binary_precision_recall_curve(scores, targets.int())
    curve = PRCurve(targets, scores).curve
    # torchmetrics leaves out what comes after the first threshold of full recall.
    first = int((curve.x[0] >= 1).nonzero()[0]) + 1
    given_first = int((recall.flip(0) >= 1).nonzero()[0]) + 1
    assert torch.equal(curve.x[0, :first].float(), recall.flip(0)[:given_first])
    assert torch.equal(curve.y[0, :first].float(), precision.flip(0)[:given_first])


def test_a_row_holds_texts_curves_and_matrices_and_a_page_shows_them(tmp_path):
    def make(iteration):
        return {
            "sample": Text(f"*{iteration}*"),
            "roc": Curve([0.0, 1.0], [0.5, iteration / 2], axes=("fpr", "tpr")),
            "pr": PRCurve([1, 0], [0.9, 0.2]),
            "confusion": ConfusionMatrix([[2, 0], [1, iteration]], labels=["cat", "dog"]),
        }

    [facts] = facts_of(run_of(tmp_path / "run", make, 2))
    found = {name: each[-1] for name, each in facts.exhibits.items()}
    assert {name: each.kind for name, each in found.items()} == {
        **{"sample": "text", "roc": "curve", "pr": "curve", "confusion": "matrix"}
    }
    assert found["sample"].content == {"text": "*2*"}
    roc = {"x": [[0, 1]], "y": [[0.5, 1]], "axes": ["fpr", "tpr"], "labels": None}
    assert found["roc"].content == roc
    assert found["pr"].content["y"] == [[1, 1, 0.5]]
    assert found["confusion"].content == {"matrix": [[2, 0], [1, 2]], "labels": ["cat", "dog"]}
    cards = cards_of([facts])
    assert [*cards] == [HEADINGS[kind] for kind in ("text", "curve", "matrix")]
    figures = media_figures(cards, [facts])
    heat = figures["medium matrix 0 confusion"]["data"]
    assert [trace["meta"]["at"] for trace in heat] == [1, 2]
    assert (heat[1]["z"], heat[1]["text"]) == ([[1, 0], [0.3333, 0.6667]], [["2", "0"], ["1", "2"]])


def test_a_curve_of_many_points_is_written_as_two_hundred_with_both_ends(tmp_path):
    x = torch.linspace(0, 1, 10_001)
    run_of(tmp_path, lambda iteration: {"curve": Curve(x, x * x)})
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    [line] = row["curve"]["x"]
    assert (len(line), line[0], line[-1]) == (200, 0, 1)


@pytest.mark.parametrize(
    "value",
    [
        *({"text": 1}, {"matrix": [[1, 2]]}, {"matrix": [1]}, {"x": [[1]], "y": [[1]]}),
        *({"x": [[1]], "y": [[1, 2]], "axes": ["a", "b"]}, {"x": "a", "y": "b", "axes": "ab"}),
    ],
)
def test_what_looks_like_one_and_is_none_is_left_out(tmp_path, value):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"iteration": 1, "odd": value}) + "\n")
    rows = MetricFiles(tmp_path)
    rows.look()
    assert rows.exhibits == {}


def test_one_that_is_too_large_is_named_and_a_long_text_is_cut(tmp_path):
    rows = [
        {"iteration": 1, "large": {"matrix": [[0] * 300] * 300}},
        {"iteration": 1, "long": {"text": "x" * 30_000}},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    [facts] = facts_of(tmp_path)
    assert facts.notes == ["shown: curves and matrices of at most 40,000 numbers"]
    assert [*facts.exhibits] == ["long"]
    assert facts.exhibits["long"][0].content["text"].endswith("x\n... (10,000 more characters)")


@pytest.mark.slow
def test_the_texts_of_a_long_run_make_no_large_page(tmp_path):
    text = json.dumps({"text": "x" * 20_000})
    with (tmp_path / "rows.jsonl").open("w") as file:
        for iteration in range(1, 100):
            named = ", ".join(f'"text{name}": {text}' for name in range(30))
            file.write(f'{{"iteration": {iteration}, {named}}}\n')
    [facts] = facts_of(tmp_path)
    page = Page([facts]).news()["sections"]["charts"]
    assert 1_900_000 < len(page) < 2_300_000
    newest = {each[-1].iteration for each in facts.exhibits.values()}
    assert newest == {99}  # of each name
    assert page.count('data-iteration="99"') == 30
    assert "more iterations not shown" in page


def test_what_does_not_fit_together_is_refused_when_it_is_made():
    with pytest.raises(ValueError, match=r"needs two of one shape"):
        Curve([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="got 1 labels; it needs 2, one for each line"):
        Curve(torch.zeros(2, 3), torch.zeros(2, 3), labels=["a"])
    with pytest.raises(ValueError, match="needs a row and a column for each class"):
        ConfusionMatrix(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="at most 200 classes"):
        ConfusionMatrix(torch.zeros(201, 201))
    with pytest.raises(ValueError, match=r"PRCurve got .* Curve\(recall, precision"):
        PRCurve([1, 0, 1], [0.5, 0.5])


def test_runs_show_a_name_at_the_same_iterations_and_each_its_newest():
    def exhibits(count, every):
        return [Exhibit(at * every, "text", {}, 1) for at in range(1, count + 1)]

    runs = {("a", 0): exhibits(100, 10), ("a", 1): exhibits(37, 10)}
    chosen = to_show(runs, most=1000)
    first, second = ([each.iteration for each in run if each in chosen] for run in runs.values())
    assert first == [10, 100, 190, 280, 370, 460, 550, 640, 730, 820, 910, 1000]
    assert second == [10, 100, 190, 280, 370]


def test_the_caption_of_an_image_goes_through_its_file(tmp_path):
    engine = Engine(lambda state, batch: state.metrics.update(a=Image(torch.rand(2, 2), "größer")))
    engine.add(ImageFiles(tmp_path, when=EACH)).run([1], max_epochs=1)
    [picture] = images_in(tmp_path)["a"]
    assert (picture.caption, picture.width) == ("größer", 2)
    for content in (b"", b"\x89PNG\r\n\x1a\n", picture.content[:50]):
        (tmp_path / "odd.png").write_bytes(content)
        assert Picture(tmp_path / "odd.png", 1, 1).caption in ("", "gr")


def test_notes_in_the_directory_are_shown_with_their_tags(tmp_path):
    run = RunDirectory(run_of(tmp_path / "run", lambda at: {"loss": 1.0}), "run")
    assert run.look()
    assert not run.look()
    (tmp_path / "run" / "notes.md").write_text("# Why\n#baseline <b>of</b> #warm-up, issue #3\n")
    assert run.look()
    facts = run.facts()
    assert facts.written.tags == ["baseline", "warm-up"]
    head = Page([facts]).news()["sections"]["head"]
    assert "#baseline &lt;b&gt;of&lt;/b&gt;" in head
    (tmp_path / "run" / "notes.md").unlink()
    (tmp_path / "run" / "notes.md").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("#secret")
    run.look()
    assert run.facts().written.text == ""  # links are not followed


def test_a_failed_run_says_why_in_the_comparison(tmp_path):
    start = {"event": "started", "time": 1, "iteration": 0, "part": 1}
    failed = {"event": "failed", "time": 2, "iteration": 3, "part": 1}
    error = "RuntimeError: out of memory\n  on device 0"
    for name in "ab":
        run_of(tmp_path / name, lambda at: {"loss": 1.0})
        lines = [start, {**failed, "reason": error}] if name == "a" else [start]
        (tmp_path / name / "journal.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in lines))
    head = Page(facts_of(tmp_path / "a", tmp_path / "b")).news()["sections"]["head"]
    assert head.count("RuntimeError: out of memory") == 2
    assert "a failed</h3>" in head
    assert "on device 0" in head


def test_a_report_in_a_notebook_is_a_frame_that_can_reach_nothing(tmp_path):
    made = camshaft.report(run_of(tmp_path / "run", lambda at: {"loss": 1.0}))
    shown = made._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts allow-downloads" ')
    assert html.unescape(shown.split('srcdoc="')[1].removesuffix('"></iframe>')) == made.html
    made.write(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == made.html
    assert len(repr(made)) < 100
    with pytest.raises(NotADirectoryError, match="make it"):
        made.write(tmp_path / "no" / "page.html")
    with pytest.raises(NothingToReportError, match="no is no directory"):
        camshaft.report(tmp_path / "no")
    with pytest.raises(NothingToReportError, match=r'report\("runs/demo"\)'):
        camshaft.report()
