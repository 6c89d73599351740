"""The documentation site, built once and looked at in a browser."""

import subprocess
import sys
from pathlib import Path

import pytest

import camshaft
from camshaft import handlers

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "docs" / "build_site.py"
LOOKED_AT = ("index", "start", "features", "guides/order", "migrate/ignite", "reference/engine")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
pytest.importorskip("zensical", reason='needs pip install "camshaft[docs]"')


def build(folder, script=BUILD):
    command = [sys.executable, script, folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site of this checkout. Links and anchors that lead nowhere would be errors."""
    folder = tmp_path_factory.mktemp("docs")
    result = build(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No issues found" in result.stderr
    return folder / "site"


def test_every_public_name_has_its_place_in_the_reference(site):
    text = "".join(page.read_text() for page in site.glob("reference/*.html"))
    public = [
        f"camshaft.{name}" for name in camshaft.__all__ if name not in ("ranks", "__version__")
    ]
    public += [f"camshaft.handlers.{name}" for name in handlers.__all__]
    assert len(public) > 80
    assert [name for name in public if f'id="{name}"' not in text] == []


@pytest.mark.soak
def test_pages_ask_for_nothing_outside_and_fit_any_width(site, open_page):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 60
    for width in (1440, 420):
        page = open_page(site / "index.html", viewport={"width": width, "height": 900})
        too_wide = []
        for each in pages:
            page.goto(each.as_uri())
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                too_wide.append(each.name)
        assert too_wide == []
        assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 420])
def test_pages_are_pictured_for_people_to_look_at(site, open_page, artefact, width, scheme):
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    page = open_page(site / "index.html", **options)
    for name in LOOKED_AT:
        page.goto((site / f"{name}.html").as_uri())
        page.screenshot(path=artefact(f"site-{name.replace('/', '-')}-{width}-{scheme}"))
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, paper.strip("rgba()").split(",")[:3])) > 384) == (scheme == "light")
    assert page.complaints == []


def test_a_search_finds_a_name_without_a_server_and_leads_to_it(site, open_page):
    page = open_page(site / "index.html")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Control+k")
    page.wait_for_timeout(500)
    page.keyboard.type("EarlyStopping")
    page.wait_for_timeout(2000)
    page.keyboard.press("Enter")
    page.wait_for_url(
        "**/reference/evaluation.html?h=EarlyStopping#camshaft.handlers.EarlyStopping"
    )
    assert page.locator("[id='camshaft.handlers.EarlyStopping']").is_visible()
    assert [url for url in page.asked if url.startswith("http")] == []


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (
            lambda docs: (docs / "guides" / "new.md").rename(docs / "tutorials" / "lost.md"),
            "lost.md",
        ),
        (lambda docs: (docs / "guides" / "steps.md").unlink(), "steps.md"),
        (
            lambda docs: (docs / "start.md").write_text("[a](guides/steps.md#nowhere)\n"),
            "anchor does",
        ),
        (lambda docs: (docs / "start.md").write_text("[a](guides/nowhere.md)\n"), "nowhere.md"),
    ],
    ids=["page-that-nothing-names", "name-without-page", "anchor", "link"],
)
def test_what_leads_nowhere_is_an_error(tmp_path, edit, told):
    copy = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", ROOT, copy], check=True)
    (copy / "docs" / "guides" / "new.md").write_text("# New\n")
    edit(copy / "docs")
    result = build(tmp_path / "built", copy / "docs" / "build_site.py")
    assert result.returncode != 0
    assert told in result.stdout + result.stderr
