"""`camshaft report` in a real browser."""

import json
import math

import pytest

from camshaft.__main__ import main

PLOT = """[...document.querySelectorAll('figure')]
    .find(figure => figure.querySelector('h3').textContent == 'loss').querySelector('.chart')"""
ALL_DRAWN = "[...document.querySelectorAll('.chart')].every(chart => chart.querySelector('svg'))"


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
    """Every chart, drawn."""
    page.evaluate("drawAll()")
    page.until(ALL_DRAWN)
    return page


def lines(page, plot=PLOT):
    """The names and the numbers of points of the lines that are really in the picture."""
    return page.evaluate(
        f"""[...{plot}.querySelectorAll('.scatterlayer .trace')].map(trace => [
            trace.__data__[0].trace.name,
            [...trace.querySelectorAll('path.js-line')]
                .map(path => path.getAttribute('d').split(/[ML]/).length - 1)
                .reduce((sum, each) => sum + each, 0)])"""
    )


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
    text = page.inner_text("body")
    for said in ("completed", "max_epochs", "val/accuracy, highest", "iteration-0000000144"):
        assert said in text
    for told in ("Checkpoint.save", "batch_size", "torch", "whole, by its sizes", "best, latest"):
        assert told in text, told
    page.screenshot(path=artefact("report"), full_page=True)


def test_the_switches_and_the_slider_change_what_is_drawn(report, open_page, tmp_path):
    page = drawn(open_page(report(rows(tmp_path / "run"))))
    axis = f"{PLOT}._fullLayout.yaxis"
    assert page.evaluate(f"{axis}.type") == "linear"
    page.get_by_label("Logarithmic values").check()
    assert page.evaluate(f"{axis}.type") == "log"
    low, high = page.evaluate(f"{axis}.range")
    assert -3 < low < high < 1  # exponents of ten
    page.get_by_label("Logarithmic iterations").check()
    assert page.evaluate(f"{PLOT}._fullLayout.xaxis.type") == "log"
    assert [name for name, _ in lines(page)] == ["loss", "loss", "val/loss"]

    def roughness():
        return page.evaluate(
            f"(y => y.slice(1).reduce((sum, each, i) => sum + Math.abs(each - y[i]), 0))"
            f"({PLOT}.data.find(trace => trace.uid == 'loss smooth').y)"
        )

    before = roughness()
    page.get_by_label("Smoothing").fill("0.95")
    assert roughness() < 0.9 * before
    assert page.inner_text("#smoothing-value") == "0.95"
    page.get_by_label("Smoothing").fill("0")
    assert [name for name, _ in lines(page)] == ["loss", "val/loss"]
    assert page.complaints == []


def test_smoothing_is_the_debiased_exponential_mean(report, open_page, tmp_path):
    page = drawn(open_page(report(rows(tmp_path / "run"))))
    raw, smooth = page.evaluate(f"{PLOT}.data.filter(t => t.name == 'loss').map(t => t.y)")
    total = mass = 0.0
    for value, shown in zip(raw, smooth, strict=True):
        total, mass = 0.6 * total + 0.4 * value, 0.6 * mass + 0.4
        assert shown == pytest.approx(total / mass)


def test_a_comparison_shows_all_runs_and_what_differs(digits, trained, report, open_page, artefact):
    other = digits("other", "--max-epochs", "2", "--batch-size", "64")
    page = drawn(open_page(report(trained, other)))
    names = {name for name, _ in lines(page)}
    assert names == {"digits: loss", "digits: val/loss", "other: loss", "other: val/loss"}
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


def test_a_hostile_metric_is_text_and_nothing_of_it_runs(report, open_page, tmp_path):
    evil = "</script><img src=x onerror=alert(1)><b>"
    path = report(rows(tmp_path / "run", **{evil: 1, "<b>bold</b>": 2, "__proto__": 3}))
    page = drawn(open_page(path))
    assert page.complaints == []
    assert page.asked == [path.as_uri()]
    assert evil in page.inner_text("body")
    offers = page.eval_on_selector_all(".modebar-btn", "all => all.map(e => e.dataset.title)")
    assert offers
    assert not [each for each in offers if "Share" in each]  # a run is nobody else's business
    assert page.locator("main img, main b").count() == 0


def test_a_gap_is_marked_and_counted(report, open_page, tmp_path):
    run = rows(tmp_path / "run", 20)
    with (run / "rows.jsonl").open("a") as file:
        for iteration, loss in ((21, "NaN"), (22, 0.1), (23, 0.2)):
            file.write(json.dumps({"iteration": iteration, "epoch": 1, "loss": loss}) + "\n")
    page = drawn(open_page(report(run)))
    assert "loss: 1 value not a number" in page.inner_text("figure >> nth=0")
    assert page.evaluate(f"{PLOT}.data.find(t => t.uid == 'loss odd').x") == [21]
    assert page.evaluate(f"{PLOT}.querySelectorAll('.scatterlayer .point').length") >= 1


def test_a_hundred_thousand_rows_are_drawn_as_few_points_and_said_to_be_many(
    report, open_page, tmp_path
):
    page = drawn(open_page(report(rows(tmp_path / "run", 100_000))))
    ((_, raw), (_, smooth), _) = lines(page)
    assert raw <= 2500
    assert smooth <= 600
    assert "loss: 100,000 rows, drawn as" in page.inner_text("figure >> nth=0")
    assert page.complaints == []


def test_without_rows_or_journal_it_says_what_to_add(report, open_page, tmp_path):
    from camshaft import Engine
    from camshaft.handlers import Checkpoint

    Engine(lambda state, batch: batch, Checkpoint(tmp_path / "run")).run([1], max_epochs=1)
    page = open_page(report(tmp_path / "run"))
    text = page.inner_text("body")
    for said in ("Add JSONLines(", "Add Journal(directory)", "iteration-0000000001"):
        assert said in text
    assert page.complaints == []


def test_it_fits_a_phone(trained, report, open_page, artefact):
    phone = {"viewport": {"width": 375, "height": 700}, "has_touch": True, "is_mobile": True}
    page = drawn(open_page(report(trained), **phone))
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 375
    assert page.complaints == []
    page.screenshot(path=artefact("report-phone"), full_page=True)


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_curves_stand_out_in_light_and_in_dark(
    scheme, trained, report, open_page, artefact
):
    page = drawn(open_page(report(trained), color_scheme=scheme))
    texts = ["--ink", "--soft", "--good", "--bad", "--warn", "--accent"]
    pairs = [[text, ground] for text in texts for ground in ("--paper", "--ground")]
    for one, other, ratio in page.evaluate(f"{CONTRAST}({json.dumps(pairs)})"):
        assert ratio >= 4.5, (one, other, ratio)  # WCAG 2, AA, for text
    pairs = [[f"--c{number}", "--paper"] for number in range(8)]
    for one, other, ratio in page.evaluate(f"{CONTRAST}({json.dumps(pairs)})"):
        assert ratio >= 3, (one, other, ratio)  # and for graphics
    dark = page.evaluate(f"{CONTRAST}([['--ink', '--paper']])[0][2]")
    assert dark > 10
    page.screenshot(path=artefact(f"report-{scheme}"))


def test_it_can_be_used_with_a_keyboard_and_read_aloud(trained, report, open_page):
    page = drawn(open_page(report(trained)))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the charts"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#smoothing-value") == "0.61"
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.get_by_label("Logarithmic values").is_checked()
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("h1").count() == 1
    for chart in page.locator(".chart").all():
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label")) > 20
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("input:not([id])").count() == 0
    spoken = page.locator("main").aria_snapshot()
    assert 'slider "Smoothing' in spoken
    assert 'heading "Timeline"' in spoken
