"""Several runs in a real browser: their table, their settings, images side by side, and files."""

import csv
import io

import pytest
import torch

import camshaft
from camshaft import Engine, Events
from camshaft.__main__ import main
from camshaft.handlers import ImageFiles, Journal, JSONLines
from camshaft.handlers.loggers import ConfusionMatrix, Curve, Image, PRCurve, Text

pytestmark = pytest.mark.slow
CONFIGS = [(0.1, 32, "sgd"), (0.01, 32, "adam"), (0.001, 64, "adam"), (0.03, 64, "sgd")]


def train(directory, lr, width, optimizer, *, every=10, count=40, name="val"):
    """A run with one of each medium, whose losses are known."""

    def step(state, batch):
        state.metrics["loss"] = 1 / (state.iteration + 100 * lr)
        if state.iteration % every == 0:
            at = state.iteration
            state.metrics[f"{name}/loss"] = lr
            state.metrics[f"{name}/images"] = Image(torch.full((8, 8), at / count), f"of {name}")
            state.metrics[f"{name}/said"] = Text(f"at {at} by {name}")
            state.metrics[f"{name}/pr"] = PRCurve([1, 0, 1], [0.9, 0.5, at / 100])
            curves = torch.tensor([[0.0, 1.0], [0.0, at / 100]])
            state.metrics[f"{name}/roc"] = Curve(
                curves, curves, axes=("false", name), labels=["cat", name]
            )
            matrix = [[at, 1], [0, 2]]
            state.metrics[f"{name}/confusion"] = ConfusionMatrix(matrix, labels=["cat", name])

    engine = Engine(step, JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED))
    config = {"lr": lr, "model": {"width": width}, "optimizer": optimizer}
    engine.add(Journal(directory, config=config), ImageFiles(directory / "images"))
    engine.add(ImageFiles(directory / "images", when=Events.ITERATION_COMPLETED))
    engine.run(range(count), max_epochs=1)
    return directory


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = [train(folder / name, *each) for name, each in zip("abcd", CONFIGS, strict=True)]
    (made[1] / "notes.md").write_text("#baseline\nThe rate of the paper.")
    return made


@pytest.fixture(scope="module")
def path(runs, tmp_path_factory):
    page = tmp_path_factory.mktemp("page") / "page.html"
    assert main(["report", *map(str, runs), "-o", str(page)]) == 0
    return page


@pytest.fixture
def page(path, open_page):
    opened = open_page(path)
    opened.evaluate("drawAll()")
    return opened


def rows_of(page, query="#runs tbody tr:visible"):
    """The first words of the rows of the table of runs."""
    return page.eval_on_selector_all(query, "all => all.map(e => e.children[0].textContent.trim())")


def drawn_runs(page, figure="[data-figure='curve loss']"):
    page.evaluate("drawAll()")
    return page.evaluate(
        f"[...new Set(document.querySelector(`{figure}`).data.map(t => t.meta.run))].sort()"
    )


def test_a_filter_by_words_tags_and_settings_counts_for_the_whole_page(page):
    field = page.get_by_label("Filter runs")
    for text, left in (
        *(("lr<0.05", "bcd"), ("lr<=0.01 width=64", "c"), ("optimizer=SGD", "ad")),
        *(("lr<", "abcd"), ("adam", "bc"), ("#baseline", "b"), ("finished", "abcd")),
        *(("val/loss>0.05", "a"), ("nowhere=3", ""), ("nobody", ""), ("model.width>32", "cd")),
    ):
        field.fill(text)
        assert rows_of(page) == [*left], text
    field.fill("lr<0.05")
    assert drawn_runs(page) == [1, 2, 3]
    assert page.inner_text("#kept") == "3 of 4 runs"
    assert page.locator("#legend button:visible").all_inner_texts()[:3] == ["b", "c", "d"]
    assert page.locator(".image .of-run:visible").count() == 3
    assert drawn_runs(page, "[data-figure=parallel]") == [1, 2, 3]
    page.reload()
    assert rows_of(page) == ["b", "c", "d"]
    field.fill("")
    assert drawn_runs(page) == [0, 1, 2, 3]
    assert page.complaints == []


def test_a_column_sorts_by_its_numbers_up_down_and_not_at_all(page):
    head = page.get_by_role("button", name="lr", exact=True)
    orders = []
    for _ in range(3):
        head.click()
        orders.append("".join(rows_of(page)))
    assert orders == ["cbda", "adbc", "abcd"]
    page.get_by_role("button", name="optimizer", exact=True).click()
    assert rows_of(page) == [*"bcad"]  # equal ones stay in their order
    sorted_by = page.get_by_role("columnheader", name="optimizer").get_attribute("aria-sort")
    assert sorted_by == "ascending"


def test_groups_have_the_means_of_their_runs_and_a_colour_in_all_charts(page):
    page.get_by_label("Group by").select_option("optimizer")
    assert rows_of(page) == ["optimizer = adam (2)", "b", "c", "optimizer = sgd (2)", "a", "d"]
    means = page.eval_on_selector_all("#runs .group", "all => all.map(e => e.innerText)")
    assert ["mean 0.0055" in means[0], "mean 0.065" in means[1]] == [True, True]
    page.evaluate("drawAll()")
    colours = page.evaluate(
        """document.querySelector("[data-figure='curve loss']").data
            .filter(t => t.name.endsWith(': loss')).map(t => [t.meta.run, t.line.color])"""
    )
    by_run = dict(map(tuple, colours))
    assert by_run[1] == by_run[2] != by_run[0] == by_run[3]
    swatch = "document.querySelector(`[data-hides='run 3'] .swatch`).style.color"
    assert page.evaluate(swatch) == "var(--c1)"
    page.get_by_label("Filter runs").fill("adam")
    assert rows_of(page) == ["optimizer = adam (2)", "b", "c"]
    page.get_by_label("Group by").select_option("")
    page.get_by_label("Filter runs").fill("")
    assert rows_of(page) == [*"abcd"]
    assert page.evaluate(swatch) == "var(--c3)"
    assert page.complaints == []


def test_settings_are_drawn_against_results(page, artefact):
    page.locator("#setting").select_option("model.width")
    page.evaluate("drawAll()")
    points = page.evaluate(
        "document.querySelector('[data-figure=scatter]').data.map(t => [t.x[0], t.y[0]])"
    )
    assert points == [[32, 0.1], [32, 0.01], [64, 0.001], [64, 0.03]]
    lines = page.evaluate(
        "document.querySelector('[data-figure=parallel]').data.map(t => [t.customdata, t.opacity])"
    )
    expected = ["lr: 0.1", "model.width: 32", "optimizer: sgd", "val/loss, lowest: 0.1"]
    assert lines[0] == [expected, 0.25]  # the worst of all is the faintest
    assert lines[2][1] == 1
    assert page.complaints == []
    page.screenshot(path=artefact("compare"), full_page=True)


def visible(page, query):
    shown = "all => all.filter(e => !e.hidden).map(e => e.alt || e.textContent)"
    return page.eval_on_selector_all(query, shown)


def test_a_slider_shows_all_runs_at_one_iteration_or_before_it(runs, open_page, tmp_path):
    other = train(tmp_path / "other", 0.2, 32, "sgd", every=15)
    camshaft.report(runs[0], other).write(tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    page.evaluate("drawAll()")
    images, texts = "figure.image img", "figure.text .frames p"
    name = "val/images at iteration"
    assert visible(page, images) == [f"{name} 40", f"{name} 30"]
    assert visible(page, "figure.image .frames .notes") == ["of val", "of val"]
    page.get_by_label("Iteration of val/images").fill("1")  # of 10, 15, 20, 30, 40
    assert visible(page, images) == [f"{name} 10", f"{name} 15"]
    assert page.inner_text("figure.image output") == "iteration 15"
    assert visible(page, "figure.image .at") == ["iteration 10", ""]
    page.get_by_label("Iteration of val/images").fill("0")
    assert visible(page, images) == [f"{name} 10"]
    page.get_by_label("Iteration of val/said").fill("2")
    assert visible(page, texts) == ["at 20 by val", "at 15 by val"]
    page.get_by_label("Iteration of val/confusion").fill("2")
    page.get_by_label("Iteration of val/roc").fill("2")
    heat = (
        "document.querySelector(`[data-figure='medium matrix %s val/confusion']`).data[0].text[0]"
    )
    assert [page.evaluate(heat % run) for run in (0, 1)] == [["20", "1"], ["15", "1"]]
    lines = page.evaluate(
        "document.querySelector(`[data-figure='medium curve all val/roc']`).data.map(t => t.y)"
    )
    assert lines == [[0, 1], [0, pytest.approx(0.2)], [0, 1], [0, pytest.approx(0.15)]]
    assert page.complaints == []


def saved(page, click):
    with page.expect_download() as download:
        click()
    return download.value.suggested_filename, download.value.path().read_bytes()


def test_charts_and_rows_are_saved_as_files(page):
    card = page.locator("figure", has=page.get_by_role("heading", name="loss", exact=True)).first
    files = {}
    for kind in ("PNG", "SVG", "CSV"):
        card.locator(".save summary").click()
        name, files[kind] = saved(page, card.get_by_role("button", name=kind).click)
        assert name == f"loss.{kind.lower()}"
        assert page.locator(".save[open]").count() == 0
    assert files["PNG"].startswith(b"\x89PNG")
    for said in (b"<svg", b"a: loss", b"d: val/loss"):  # a legend, which the page has elsewhere
        assert said in files["SVG"]
    head, *lines = csv.reader(io.StringIO(files["CSV"].decode()))
    assert head == [
        "iteration",
        *(f"{run}: {name}" for run in "abcd" for name in ("loss", "val/loss")),
    ]
    assert (len(lines), float(lines[0][1]), lines[0][2]) == (40, 1 / 11, "")
    name, content = saved(page, page.get_by_role("button", name="Rows as CSV").click)
    rows = [*csv.DictReader(io.StringIO(content.decode()))]
    assert (name, len(rows)) == ("rows.csv", 160)
    assert (rows[49]["run"], rows[49]["iteration"], float(rows[49]["val/loss"])) == (
        "b",
        "10",
        0.01,
    )
    matrix = page.locator("figure.matrix .of-run").nth(1)
    assert matrix.count() == 1
    assert page.complaints == []


def test_it_is_printed_whole_light_and_within_the_paper(path, open_page, artefact):
    page = open_page(path, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details[data-fold]:not([open])").count() == 0
    assert page.locator(".chart:not(.js-plotly-plot)").count() == 0
    paper = "getComputedStyle(document.documentElement).getPropertyValue('--paper')"
    assert page.evaluate(paper).strip() == "#ffffff"
    width = page.evaluate("document.body.getBoundingClientRect().width")
    wide = page.evaluate(
        "[...document.querySelectorAll('.chart svg, table')].map(e => e.getBoundingClientRect())"
        ".map(box => box.right)"
    )
    left = page.evaluate("document.body.getBoundingClientRect().left")
    assert max(wide) <= left + width + 1
    page.screenshot(path=artefact("print"), full_page=True)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[data-fold]:not([open])").count() > 0
    assert page.complaints == []


def test_a_notebook_shows_the_page_in_a_frame(runs, open_page, tmp_path):
    shown = camshaft.report(*runs[:2])._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><body>{shown}", encoding="utf-8")
    page = open_page(tmp_path / "notebook.html")
    frame = page.frames[1]
    frame.wait_for_function("typeof drawAll === 'function'")
    frame.evaluate("drawAll()")
    assert frame.locator(".js-plotly-plot").count() > 0
    assert frame.inner_text("h1") == "2 runs"
    frame.get_by_label("Filter runs").fill("lr<0.05")
    assert frame.locator("#runs tbody tr:visible").count() == 1
    frame.locator(".save summary").first.scroll_into_view_if_needed()
    name, content = saved(page, frame.get_by_role("button", name="Rows as CSV").click)
    assert (name, content[:13]) == ("rows.csv", b"run,iteration")
    assert page.complaints == []
