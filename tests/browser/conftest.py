"""A real browser, and what a test saw in it."""

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="session")
def chromium():
    """Headless Chromium: the machine's, or the one that playwright has installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_api.sync_playwright() as playwright:
        if found is None and not os.path.exists(playwright.chromium.executable_path):
            pytest.skip(f"there is no browser: none of {', '.join(NAMES)} is on PATH")
        browser = playwright.chromium.launch(executable_path=found, args=["--disable-gpu"])
        yield browser
        browser.close()


def until(page, expression):
    """Wait; not by `wait_for_function`, which needs the eval that the pages do not allow."""
    for _ in range(600):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    pytest.fail(f"a minute without {expression}")


@pytest.fixture
def open_page(chromium):
    """Opens an address; the page notes its `complaints` and what it `asked` for."""
    contexts = []

    def open_one(address, **options):
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.complaints, page.asked = [], []
        page.until = partial(until, page)
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (page.complaints.append("a dialog"), dialog.dismiss()))
        page.on(
            "console",
            lambda message: (
                page.complaints.append(message.text)
                if message.type in ("error", "warning")
                else None
            ),
        )
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(address if "://" in str(address) else Path(address).as_uri())
        page.wait_for_url(lambda url: "?token=" not in url)  # which a server takes out of it
        return page

    yield open_one
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def artefact():
    """Where a test leaves a picture for people to look at."""
    folder = ROOT / "tests" / "artefacts"
    folder.mkdir(exist_ok=True)
    return lambda name: str(folder / f"{name}.png")


@pytest.fixture(scope="session")
def digits(processes, tmp_path_factory):
    """Trains the example on digits with some arguments, and gives its directory."""

    def train(name, *arguments):
        directory = tmp_path_factory.mktemp(name) / name
        processes.run(ROOT / "examples" / "digits.py", "--directory", directory, *arguments)
        return directory

    return train


@pytest.fixture(scope="session")
def trained(digits):
    """A run of the example on digits."""
    return digits("digits", "--max-epochs", "4")


@pytest.fixture(scope="session")
def build():
    """Builds the site of a checkout."""

    def build_one(folder, checkout=ROOT):
        command = [sys.executable, checkout / "docs" / "build_site.py", folder]
        return subprocess.run(command, capture_output=True, text=True, timeout=240)

    return build_one


@pytest.fixture(scope="session")
def site(build, tmp_path_factory):
    """The site of this checkout. Links and anchors that lead nowhere would be errors."""
    folder = tmp_path_factory.mktemp("docs")
    result = build(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No issues found" in result.stderr
    return folder / "site"
