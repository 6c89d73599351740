"""What README and docs say is true."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/features.md", "docs/**/*.md")
PAGES = sorted(page for name in NAMES for page in ROOT.glob(name))


def name_of(page):
    return str(page.relative_to(ROOT))


def test_the_code_of_the_readme_runs_from_top_to_bottom(processes, tmp_path):
    blocks = blocks_of(ROOT / "README.md")
    assert len(blocks) == 1
    script = tmp_path / "readme.py"
    script.write_text(blocks[0])
    result = processes.run(script, cwd=tmp_path)
    assert re.search(r"^100 tensor\(", result.stdout, re.MULTILINE)
    assert list((tmp_path / "runs" / "readme").glob("iteration-*"))


PRELUDE = """
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

torch.manual_seed(0)
model, loss_fn = nn.Linear(4, 1), nn.functional.mse_loss
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.utils.data.TensorDataset(torch.randn(20, 4), torch.randn(20, 1))
loader = torch.utils.data.DataLoader(data, 5, shuffle=True)
val_loader = torch.utils.data.DataLoader(data, 10)
"""
AFTERWARDS = {  # what the code of a page has to have done
    "reports.md": """
from camshaft.__main__ import main
assert main(["report", "runs/demo"]) == 0
page = __import__("pathlib").Path("report.html").read_text()
assert "batch_size" in page and "iteration-0000000008" in page
""",
    "logging.md": """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
tags = EventAccumulator("runs/demo").Reload().Tags()
assert (tags["images"], tags["histograms"]) == (["input"], ["weights"])
lines = open("runs/demo/rows.jsonl").read().splitlines()
assert len(lines) == 3  # one an epoch
assert len(open("board.txt").read().splitlines()) == 1
""",
    "ignite.md": """
for name, value in by_ignite.items():
    assert torch.equal(by_bridge[name], value) and torch.equal(by_camshaft[name], value)
""",
    "resume.md": """
assert torch.load("model.pt", weights_only=True).keys() == {"weight", "bias"}
assert list(__import__("pathlib").Path("runs/demo").glob("iteration-*"))
""",
}


def blocks_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def looked_up(page):
    """A page as a parameter; quick are those that have to leave something."""
    return pytest.param(page, marks=[] if page.name in AFTERWARDS else pytest.mark.slow)


def runs_elsewhere(page):
    """True for tutorials, and for pages of two scripts, which name the test that runs both."""
    return page.parent.name == "tutorials" or "tests/migrate/test_migrate.py" in page.read_text()


LOOKED_UP = [
    page for page in PAGES if page.is_relative_to(ROOT / "docs") and not runs_elsewhere(page)
]


@pytest.mark.parametrize(
    "page", [looked_up(page) for page in LOOKED_UP if blocks_of(page)], ids=name_of
)
def test_the_code_of_a_page_runs_from_top_to_bottom(processes, page, tmp_path):
    script = tmp_path / "page.py"  # logging.py would hide the standard one
    script.write_text("\n".join([PRELUDE, *blocks_of(page), AFTERWARDS.get(page.name, "")]))
    processes.run(script, cwd=tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_inside_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


NOT_PROSE = re.compile(r"```.*?```|<!--.*?-->|^ *\|.*?$", re.DOTALL | re.MULTILINE)
"""Code, comments and rows of tables."""
AS_LONG_AS_NEEDED = {"docs/migrate", "docs/reference", "docs/project/decisions.md"}
"""What readers look things up in; the decisions have a bound of their own, below."""


def prose_of(page):
    return NOT_PROSE.sub("", page.read_text()).split()


def test_prose_is_what_is_left_without_code_comments_and_tables(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- search:\na -->\n# T\n\n| a | b |\n|---|---|\n\n```sh\n| x\n```\nTwo words.\n"
    )
    assert prose_of(page) == ["#", "T", "Two", "words."]


def test_no_page_has_more_than_2000_words_of_prose():
    pages = {name_of(page): page for page in (ROOT / "docs").rglob("*.md")}
    counted = {
        name: len(prose_of(page))
        for name, page in pages.items()
        if not {name, name.rpartition("/")[0]} & AS_LONG_AS_NEEDED
    }
    assert len(counted) > 60
    too_long = {name: words for name, words in counted.items() if words > 2000}
    assert too_long == {}, "split them into pages of one purpose each"


DECISIONS = ROOT / "docs" / "project" / "decisions.md"


def anchors_of(page):
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_decisions_are_at_most_6000_words():
    assert len(DECISIONS.read_text().split()) <= 6000


def test_each_decision_has_a_version_a_cost_and_what_would_overturn_it():
    decisions = [each for each in DECISIONS.read_text().split("\n\n") if each.startswith("**")]
    assert len(decisions) > 50
    for each in decisions:
        words = " ".join(each.split())
        assert re.search(
            r"^\*\*[^*]+\*\* \((0\.\d+|next)\) .+ \*Cost:\* .+ \*Overturned by:\* .+\.$", words
        )


def test_a_decision_with_a_measured_figure_names_the_test_that_holds_it():
    figure = re.compile(r"\d\s*(%|ns|µs|ms|s|seconds|minutes|times|lines|[kMG]i?B|bytes)\b")
    for each in DECISIONS.read_text().split("\n\n"):
        if figure.search(each):
            assert re.search(r"`tests/[\w/.]+`", each), each


def test_the_links_of_the_decisions_lead_to_pages_headings_and_files():
    text = DECISIONS.read_text()
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text):
        page = (DECISIONS.parent / target).resolve() if target else DECISIONS
        assert page.exists(), target
        assert not anchor or anchor in anchors_of(page), f"{target}#{anchor}"
    for path in re.findall(r"`((?:tests|engine|handlers)/[\w/.]*)`", text):
        assert (ROOT / path).exists(), path
    headings = anchors_of(DECISIONS) - {"decisions"}
    assert headings == set(re.findall(r"\]\(#([\w-]+)\)", text.split("\n## ")[0]))


def test_the_commands_of_the_readme_are_targets():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
