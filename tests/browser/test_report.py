"""`camshaft report` in a real browser."""

import json
import math

import pytest

from camshaft.__main__ import main

PLOT = """[...document.querySelectorAll('figure')]
    .find(figure => figure.querySelector('h3').textContent == 'loss').querySelector('.chart')"""
OPEN = "document.querySelectorAll('details').forEach(one => one.open = true)"


@pytest.fixture
def report(tmp_path):
    def make(*directories):
        path = tmp_path / "page.html"
        assert main(["report", *map(str, directories), "-o", str(path)]) == 0
        return path

    return make


def rows(directory, count=300, scale=1.0, **more):
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "rows.jsonl").open("w") as file:
        for iteration in range(1, count + 1):
            row = {"iteration": iteration, "step": iteration, "epoch": 1 + iteration // 100}
            row["loss"] = scale * (2 + math.sin(iteration * 2.3)) / iteration
            if iteration % 50 == 0:
                row["val/loss"] = scale * 2.5 / iteration
            file.write(json.dumps(row | more) + "\n")
    return directory


def drawn(page):
    """Every section open, and every chart drawn."""
    page.evaluate(OPEN)
    page.evaluate("drawAll()")
    return page


def names_in(page, plot=PLOT):
    """The names of the curves of a chart, as it is now."""
    page.evaluate("drawAll()")
    return [name for name, _ in lines(page, plot)]


def shown(page, selector="figure h3"):
    return page.eval_on_selector_all(f"{selector}:visible", "all => all.map(e => e.textContent)")


def lines(page, plot=PLOT):
    """The names and the numbers of points of the lines that are really in the picture."""
    return page.evaluate(
        f"""[...{plot}.querySelectorAll('.scatterlayer .trace')].map(trace => [
            trace.__data__[0].trace.name,
            [...trace.querySelectorAll('path.js-line')]
                .map(path => path.getAttribute('d').split(/[ML]/).length - 1)
                .reduce((sum, each) => sum + each, 0)])"""
    )


@pytest.mark.slow
def test_a_real_run_is_shown_without_an_error_and_without_asking_for_anything(
    trained, report, open_page, artefact
):
    path = report(trained)
    page = drawn(open_page(path))
    assert page.complaints == []
    assert page.asked == [path.as_uri()]
    titles = page.eval_on_selector_all("figure h3", "all => all.map(each => each.textContent)")
    assert {"loss", "accuracy", "lr", "By the clock"} <= set(titles)
    assert {name for name, points in lines(page) if points >= 4} == {"loss", "val/loss"}
    offers = page.eval_on_selector_all(".modebar-btn", "all => all.map(e => e.dataset.title)")
    assert offers
    assert not [each for each in offers if "Share" in each]  # a run is nobody else's business
    text = page.inner_text("body")
    for said in ("finished", "max_epochs", "val/accuracy, highest", "iteration-0000000144"):
        assert said in text
    for told in ("Checkpoint.save", "batch_size", "torch", "whole, by its sizes", "best, latest"):
        assert told in text, told
    page.screenshot(path=artefact("report"), full_page=True)


@pytest.mark.slow
def test_the_switches_and_the_slider_change_what_is_drawn(report, open_page, tmp_path):
    page = drawn(open_page(report(rows(tmp_path / "run"))))
    raw, smooth = page.evaluate(f"{PLOT}.data.filter(t => t.name == 'loss').map(t => t.y)")
    total = mass = 0.0
    for value, drawn_value in zip(raw, smooth, strict=True):  # the debiased exponential mean
        total, mass = 0.6 * total + 0.4 * value, 0.6 * mass + 0.4
        assert drawn_value == pytest.approx(total / mass)
    axis = f"{PLOT}._fullLayout.yaxis"
    assert page.evaluate(f"{axis}.type") == "linear"
    page.get_by_label("Log y").check()
    assert page.evaluate(f"{axis}.type") == "log"
    low, high = page.evaluate(f"{axis}.range")
    assert -3 < low < high < 1  # exponents of ten
    page.get_by_label("Log x").check()
    assert page.evaluate(f"{PLOT}._fullLayout.xaxis.type") == "log"
    assert names_in(page) == ["loss", "loss", "val/loss"]

    def roughness():
        return page.evaluate(
            f"(y => y.slice(1).reduce((sum, each, i) => sum + Math.abs(each - y[i]), 0))"
            f"({PLOT}.data.find(trace => trace.uid == 'smooth-0-0').y)"
        )

    before = roughness()
    page.get_by_label("Smoothing").fill("0.95")
    assert roughness() < 0.9 * before
    assert page.inner_text("#smoothing-value") == "0.95"
    page.get_by_label("Smoothing").fill("0")
    assert names_in(page) == ["loss", "val/loss"]
    assert page.complaints == []


@pytest.mark.slow
def test_a_comparison_shows_all_runs_and_what_differs(digits, trained, report, open_page, artefact):
    other = digits("other", "--max-epochs", "2", "--batch-size", "64")
    page = drawn(open_page(report(trained, other)))
    names = {name for name, _ in lines(page)}
    assert names == {"digits: loss", "digits: val/loss", "other: loss", "other: val/loss"}
    head = page.inner_text("#runs")
    for said in ("finished", "val/accuracy, highest", "batch_size"):
        assert said in head
    assert page.locator("#runs .best").count() >= 1
    first = page.eval_on_selector_all("#best tbody th", "all => all.map(each => each.textContent)")
    assert first[:6] == ["loss", "digits", "other", "val/loss", "digits", "other"]
    differing = page.eval_on_selector_all(
        "#config tbody tr:visible",
        "all => all.map(row => [...row.children].map(e => e.textContent))",
    )
    assert ["batch_size", "32", "64"] in differing
    assert "seed" not in {name for name, *_ in differing}
    page.get_by_label("Only what differs").first.uncheck()
    assert "seed" in page.inner_text("#config")
    assert page.complaints == []
    page.screenshot(path=artefact("comparison"), full_page=True)


LR = PLOT.replace("'loss'", "'lr'")


@pytest.mark.slow
def test_one_legend_hides_a_run_or_a_set_in_all_charts_and_equal_curves_are_drawn_once(
    report, open_page, tmp_path
):
    runs = [rows(tmp_path / name, 40 + 60 * at, 1 + at, lr=0.1) for at, name in enumerate("abc")]
    page = drawn(open_page(report(*runs)))
    page.get_by_label("Smoothing").fill("0")
    expected = ["a: loss", "b: loss", "b: val/loss", "c: loss", "c: val/loss"]
    assert names_in(page) == expected
    assert names_in(page, LR) == ["all 3 runs"]  # a constant, though the runs differ in length
    assert page.evaluate(f"Math.max(...{LR}.data[0].x)") == 160
    note = page.locator("figure", has=page.get_by_role("heading", name="lr", exact=True))
    assert "lr is the same in all 3 runs, and drawn once." in note.inner_text()
    colours = page.evaluate(f"{PLOT}.data.map(trace => [trace.meta.run, trace.line.color])")
    assert len({tuple(each) for each in colours}) == len({colour for _, colour in colours}) == 3
    entries = page.locator("#legend button")
    assert entries.all_inner_texts() == ["a", "b", "c", "training", "val"]
    entries.nth(1).click()
    assert entries.nth(1).get_attribute("aria-pressed") == "false"
    assert names_in(page) == [each for each in expected if not each.startswith("b")]
    assert names_in(page, LR) == ["all 2 runs"]
    entries.nth(3).click()
    assert names_in(page) == ["c: val/loss"]
    assert names_in(page, LR) == ["all 2 runs"]  # no evaluation measures it, so no set hides it
    page.reload()
    assert names_in(page) == ["c: val/loss"]
    entries.nth(3).click()
    entries.nth(1).click()
    entries.nth(0).dblclick()
    assert names_in(page) == ["a: loss"]
    entries.nth(0).dblclick()
    assert names_in(page) == expected
    assert page.complaints == []


@pytest.mark.slow
def test_a_search_an_axis_and_folds_count_for_the_whole_page_and_outlive_a_reload(
    report, open_page, tmp_path
):
    run = rows(tmp_path / "run", 100, **{f"norm/layer{at}": at for at in range(15)}, lr=1, gap=2)
    lines = [
        {"event": "started", "time": 1000, "iteration": 0, "limits": {"epoch_length": 50}},
        {"event": "completed", "time": 1000 + 600, "iteration": 100, "step": 100, "epoch": 2},
    ]
    (run / "journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    page = open_page(report(run))
    last = f"{PLOT}.data.at(-1).x.at(-1)"
    title = f"{PLOT}._fullLayout.xaxis.title.text"
    for clock, value, name in (
        *(("iteration", 100, "iteration"), ("step", 100, "step"), ("epoch", 2, "epoch")),
        ("time", 10, "minutes at work"),
    ):
        page.get_by_label("Over").select_option(clock)
        page.evaluate("drawAll()")
        assert page.evaluate(f"[{last}, {title}]") == [value, name]
    assert shown(page) == ["loss", "lr", "gap"]  # fifteen charts of one kind are folded
    page.get_by_label("Search").fill("NORM 13")
    assert shown(page) == ["norm/layer13"]
    assert "val/loss" not in page.inner_text("#best")
    page.get_by_label("Search").fill("loss")
    assert shown(page) == ["loss"]
    assert "val/loss" in page.inner_text("#best")
    page.get_by_label("Search").fill("nobody")
    assert shown(page) == []
    assert page.inner_text("#found") == "No metric has “nobody” in its name."
    page.get_by_label("Search").fill("")
    page.get_by_role("heading", name="Learning").click()
    page.get_by_role("heading", name="Environment").click()
    page.reload()
    assert shown(page) == ["lr", "gap"]
    assert page.get_by_label("Over").input_value() == "time"
    assert page.locator("#environment details").get_attribute("open") is not None
    folded = page.eval_on_selector_all("details[data-fold]", "all => all.map(e => e.dataset.fold)")
    charts = ["charts Learning", "charts Rate and throughput", "charts More metrics", "charts norm"]
    tables = ["best", "config", "checkpoints", "timeline", "environment", "handlers"]
    assert folded == [*charts, *tables]
    assert page.complaints == []


@pytest.mark.slow
def test_images_and_histograms_are_there_and_a_slider_goes_through_the_run(
    report, open_page, tmp_path, artefact
):
    import torch

    from camshaft import Engine, Events
    from camshaft.handlers import JSONLines
    from camshaft.handlers.loggers import Histogram, Image, ImageFiles

    def step(state, batch):
        state.metrics["val/digits"] = Image(torch.full((8, 8), batch / 4))
        state.metrics["weights"] = Histogram.of(torch.arange(batch + 2.0))

    when = Events.ITERATION_COMPLETED
    engine = Engine(step, JSONLines(tmp_path / "run" / "rows.jsonl", when=when))
    engine.add(ImageFiles(tmp_path / "run" / "images", when=when)).run(range(4), max_epochs=1)
    path = report(tmp_path / "run")
    page = drawn(open_page(path))
    assert page.asked[0] == path.as_uri()
    assert all(url.startswith("data:image/png;base64,") for url in page.asked[1:])
    image = page.locator("figure img:visible")
    assert image.get_attribute("alt") == "val/digits at iteration 4"
    assert image.evaluate("e => e.decode().then(() => e.naturalWidth)") == 8
    assert image.bounding_box()["width"] > 100
    page.get_by_label("Iteration of val/digits").fill("1")
    assert image.get_attribute("alt") == "val/digits at iteration 2"
    assert page.locator("figure.image output").inner_text() == "iteration 2"
    heatmap = page.evaluate("document.querySelector('[data-figure^=histogram]').data[0]")
    assert heatmap["x"] == [1, 2, 3, 4]
    shares = [sum(column) for column in zip(*heatmap["z"], strict=True)]
    assert shares == pytest.approx([1] * 4, abs=1e-3)  # each is rounded
    assert page.complaints == []
    page.screenshot(path=artefact("report-images"), full_page=True)


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_drawn_as_few_points_and_said_to_be_many(
    report, open_page, tmp_path
):
    page = drawn(open_page(report(rows(tmp_path / "run", 100_000))))
    ((_, raw), (_, smooth), _) = lines(page)
    assert raw <= 2500
    assert smooth <= 600
    assert "loss: 100,000 rows, drawn as" in page.inner_text("figure >> nth=0")
    assert page.complaints == []


@pytest.mark.slow
def test_it_fits_a_phone_whatever_metrics_are_called(
    trained, report, open_page, artefact, tmp_path
):
    phone = {"viewport": {"width": 420, "height": 800}, "has_touch": True, "is_mobile": True}
    name = "val/" + "_".join(["an_endless_name_of_a_metric"] * 6)
    for at, runs in enumerate(
        [[trained], [trained, rows(tmp_path / "run", **{name: 1, "x" * 99: 2})]]
    ):
        page = drawn(open_page(report(*runs), **phone))
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 420
        wide = """[...document.querySelectorAll('main *')]
            .filter(one => one.getBoundingClientRect().right > 421 && !one.closest('.scroll, svg'))
            .map(one => one.outerHTML.slice(0, 99))"""
        assert page.evaluate(wide) == []
        assert page.locator(".modebar").count() == 0  # nothing hovers over a phone
        assert page.complaints == []
        page.screenshot(path=artefact(f"report-phone-{at}"), full_page=True)


CONTRAST = """(pairs => {
  const light = (name) => {
    const made = document.body.appendChild(document.createElement('i'));
    made.style.color = `var(${name})`;
    const [r, g, b] = getComputedStyle(made).color.match(/[\\d.]+/g).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
    made.remove();
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return pairs.map(([one, other]) => {
    const [a, b] = [light(one), light(other)];
    return [one, other, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
})"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_curves_stand_out_in_light_and_in_dark(
    scheme, trained, report, open_page, artefact
):
    page = drawn(open_page(report(trained), color_scheme=scheme))
    texts = ["--ink", "--soft", "--good", "--bad", "--warn", "--accent"]
    pairs = [[text, ground] for text in texts for ground in ("--paper", "--ground")]
    for one, other, ratio in page.evaluate(f"{CONTRAST}({json.dumps(pairs)})"):
        assert ratio >= 4.5, (one, other, ratio)  # WCAG 2, AA, for text
    pairs = [[f"--c{number}", "--paper"] for number in range(10)]
    for one, other, ratio in page.evaluate(f"{CONTRAST}({json.dumps(pairs)})"):
        assert ratio >= 3, (one, other, ratio)  # and for graphics
    dark = page.evaluate(f"{CONTRAST}([['--ink', '--paper']])[0][2]")
    assert dark > 10
    page.screenshot(path=artefact(f"report-{scheme}"))


@pytest.mark.slow
def test_it_can_be_used_with_a_keyboard_and_read_aloud(trained, report, open_page):
    page = drawn(open_page(report(trained)))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the charts"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#smoothing-value") == "0.61"
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.get_by_label("Log y").is_checked()
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("h1").count() == 1
    for chart in page.locator(".chart").all():
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label")) > 20
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("input:not([id]):not([aria-label])").count() == 0
    spoken = page.locator("main").aria_snapshot()
    assert 'slider "Smoothing' in spoken
    assert 'heading "Timeline"' in spoken
