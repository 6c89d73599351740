"""The documentation site, built once and looked at in a browser."""

import json
import re
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import camshaft
from camshaft import handlers

ROOT = Path(__file__).parents[2]
LOOKED_AT = ("index", "start", "features", "guides/order", "migrate/ignite", "reference/engine")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
pytest.importorskip("zensical", reason='needs pip install "camshaft[docs]"')


def test_each_guide_says_what_newcomers_call_its_subject():
    pages = [*ROOT.glob("docs/guides/*.md"), *ROOT.glob("docs/tutorials/*.md")]
    lacking = [page.name for page in pages if "<!-- search: " not in page.read_text()[:200]]
    assert lacking == [], "begin each of them with <!-- search: words of newcomers -->"


def test_each_picture_that_is_shown_is_there_in_light_and_dark_and_they_are_small():
    pages = (page.read_text() for page in ROOT.glob("docs/**/*.md"))
    shown = {name for text in pages for name in re.findall(r"pictures/([\w-]+)-light\.webp", text)}
    files = {file.name: file.stat().st_size for file in ROOT.glob("docs/assets/pictures/*")}
    both = {f"{name}-{scheme}.webp" for name in shown for scheme in ("light", "dark")}
    assert both | {"terminal.svg"} == files.keys()
    assert sum(files.values()) < 1_000_000


def test_decisions_and_changes_are_not_what_a_search_finds(site):
    items = json.loads((site / "search.json").read_text())["items"]
    found = {item["location"].partition("#")[0] for item in items}
    assert len(found) > 60
    assert not found & {"project/decisions.html", "project/changelog.html"}
    assert not (site / "project" / "decisions.html").exists()


def test_a_name_in_the_reference_shows_its_source(site, open_page):
    page = open_page(f"{(site / 'reference' / 'engine.html').as_uri()}#camshaft.Engine.run")
    method = page.locator("div.doc-function:has([id='camshaft.Engine.run'])").last
    method.locator("summary").last.click()
    assert "def run(" in method.locator("details pre").last.inner_text()


def test_the_reference_names_files_of_the_package_and_links_to_guides(site):
    texts = [each.read_text() for each in (site / "reference").glob("*.html")]
    assert not any("__editable__" in each for each in texts)
    assert any('href="../guides/ranks-change.html">Change the number' in each for each in texts)


def test_the_button_of_a_block_with_prompts_copies_what_is_typed(site, open_page):
    page = open_page(site / "start.html")
    copied = page.locator("[data-copy]").evaluate_all("all => all.map(each => each.dataset.copy)")
    assert "python train.py runs/whole" in copied
    page = open_page(site / "reference" / "engine.html")
    copied = page.locator("[data-copy]").evaluate_all("all => all.map(each => each.dataset.copy)")
    assert all(">>>" not in each and each.strip() for each in copied)
    assert copied[0].endswith("state = trainer.run([1, 2, 3, 4], max_epochs=1)\nstate.stop_reason")


def test_each_page_has_a_summary_of_its_own(site):
    pages = [*(site / "guides").glob("*.html"), *(site / "migrate").glob("*.html")]
    found = [re.search(r'name="description" content="([^"]+)', e.read_text())[1] for e in pages]
    assert len({*found}) == len(pages) > 60
    assert min(map(len, found)) > 30


def test_a_server_with_several_versions_lets_the_reader_choose(site, open_page, tmp_path):
    for version in (camshaft.__version__, "9.0.0"):
        (tmp_path / version).symlink_to(site)
    versions = [{"version": each, "title": each} for each in ("9.0.0", camshaft.__version__)]
    (tmp_path / "versions.json").write_text(json.dumps(versions))
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        page = open_page(f"{address}/{camshaft.__version__}/guides/resume.html")
        choice = page.locator("select.version")
        assert choice.input_value() == camshaft.__version__
        choice.select_option("9.0.0")
        page.wait_for_url(f"{address}/9.0.0/")
        server.shutdown()


def test_a_page_that_is_opened_from_a_folder_shows_its_version(site, open_page):
    page = open_page(site / "guides" / "resume.html")
    assert page.locator("span.version").inner_text() == camshaft.__version__
    assert page.complaints == []


def test_pages_offer_no_repository_while_its_address_is_an_example(site):
    for page in ("index.html", "guides/resume.html"):
        assert "Edit this page" not in (site / page).read_text()
        assert 'class="md-source"' not in (site / page).read_text()


@pytest.mark.soak
def test_pages_can_be_edited_in_the_repository_once_it_has_an_address(build, tmp_path):
    copy = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", ROOT, copy], check=True)
    project = copy / "pyproject.toml"
    text = project.read_text().replace("https://camshaft.example/source", "https://git.test/a/b")
    project.write_text(text)
    result = build(tmp_path / "built", copy)
    assert result.returncode == 0, result.stdout + result.stderr
    site = tmp_path / "built" / "site"
    text = (site / "guides" / "resume.html").read_text()
    assert 'href="https://git.test/a/b/edit/main/docs/guides/resume.md"' in text
    assert 'class="md-source"' in text
    assert "/edit/main/CHANGELOG.md" in (site / "project" / "changelog.html").read_text()
    assert "Edit this page" not in (site / "reference" / "engine.html").read_text()


def test_every_public_name_has_its_place_in_the_reference(site):
    text = "".join(page.read_text() for page in site.glob("reference/*.html"))
    public = [
        f"camshaft.{name}" for name in camshaft.__all__ if name not in ("ranks", "__version__")
    ]
    public += [f"camshaft.handlers.{name}" for name in handlers.__all__]
    assert len(public) > 80
    assert [name for name in public if f'id="{name}"' not in text] == []


@pytest.mark.soak
@pytest.mark.timeout(1200)  # over a hundred pages, twice
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


@pytest.mark.soak
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
        pytest.param(
            lambda docs: (docs / "guides" / "new.md").rename(docs / "tutorials" / "lost.md"),
            "lost.md",
            marks=pytest.mark.soak,
        ),
        (lambda docs: (docs / "guides" / "steps.md").unlink(), "steps.md"),
        pytest.param(
            lambda docs: (docs / "start.md").write_text("[a](guides/steps.md#nowhere)\n"),
            "anchor does",
            marks=pytest.mark.soak,
        ),
        (lambda docs: (docs / "start.md").write_text("[a](guides/nowhere.md)\n"), "nowhere.md"),
    ],
    ids=["page-that-nothing-names", "name-without-page", "anchor", "link"],
)
def test_what_leads_nowhere_is_an_error(build, tmp_path, edit, told):
    copy = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", ROOT, copy], check=True)
    (copy / "docs" / "guides" / "new.md").write_text("# New\n")
    edit(copy / "docs")
    result = build(tmp_path / "built", copy)
    assert result.returncode != 0
    assert told in result.stdout + result.stderr
