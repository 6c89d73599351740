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
    """A page as a parameter; those about migration import large libraries."""
    return pytest.param(page, marks=[pytest.mark.slow] if page.parent.name == "migrate" else [])


def runs_elsewhere(page):
    """True for tutorials and pages of two scripts, which a folder of tests follows by name."""
    of_two = page.parent.name == "migrate" and (ROOT / "tests" / "migrate" / page.stem).is_dir()
    return of_two or page.parent.name == "tutorials"


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


def test_the_commands_of_the_readme_are_targets():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
