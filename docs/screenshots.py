"""Take the pictures of pages, reports and terminals that the docs show: make picture.

    python docs/screenshots.py                     # all of them
    python docs/screenshots.py watched notebook    # these

They are taken of the script on the front page and of examples/digits.py, by a headless Chromium.
"""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbconvert
import nbformat
from nbclient import NotebookClient
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from terminal import film, svg

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "assets" / "pictures"
BIN = Path(sys.executable).parent
SCHEMES = ("light", "dark")
ADDRESS = re.compile(r"http://\S+")
CELLS = (
    """import torch
from sklearn.datasets import load_digits
from camshaft import loader, supervised
from camshaft.handlers import ClipGradNorm, ProgressBar

images, labels = map(torch.tensor, load_digits(return_X_y=True))
digits = torch.utils.data.TensorDataset(images.float() / 16, labels)
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

engine = supervised(model, optimizer, torch.nn.functional.cross_entropy)
engine.add(ClipGradNorm(1.0), ProgressBar("loss"))
state = engine.run(loader(digits, 32, training=True), max_epochs=3)""",
    "engine",
)
"""A notebook: a run with its bars, and the picture of its engine."""


def run(*command: str | Path, folder: Path) -> None:
    """Run a command that has to succeed."""
    subprocess.run(command, cwd=folder, check=True)


def save(shot: bytes, name: str, width: int) -> None:
    """Save a screenshot as a small file."""
    image = Image.open(io.BytesIO(shot)).convert("RGB")
    height = round(image.height * width / image.width)
    image = image.resize((width, height), Image.Resampling.LANCZOS)
    image.save(PICTURES / f"{name}.webp", quality=82, method=6)


@contextmanager
def browser() -> Iterator[Any]:
    """A page of a headless browser, by the scheme of its colours and its width."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--disable-gpu"]
        )

        def page(scheme: str, width: int, height: int) -> Page:
            size = {"width": width, "height": height}
            context = chromium.new_context(
                viewport=size, color_scheme=scheme, device_scale_factor=2
            )
            return context.new_page()

        yield page
        chromium.close()


def script_of_the_front_page() -> str:
    """The script, which draws its bar more often here: the film is short."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL)
    return str(blocks[0]).replace('"val/loss")', '"val/loss", interval=0.01)')


def kill_in_epoch_four(line: str, process: subprocess.Popen[bytes]) -> None:
    """Kill the run on the front page in the middle of an epoch, as `kill -9` does."""
    if re.search(r"epoch 4/\d+: +[4-9]\d%", line) and not seen:
        seen.append(line)
        os.kill(process.pid, signal.SIGKILL)


seen: list[str] = []


def terminal(folder: Path, page: Any) -> None:
    """The film of the front page: a run, a kill, and the rest of the run."""
    (folder / "train.py").write_text(script_of_the_front_page())
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    commands = {"python train.py": 4.0, "python train.py  # again": 6.0}
    frames = film(commands, folder, kill_in_epoch_four)
    title = "A run is killed in its fourth epoch, is started again, and goes on there"
    (PICTURES / "terminal.svg").write_text(svg(frames, title))


def look(page: Any, address: str, name: str, width: int, height: int) -> None:
    """Picture a page in both schemes, once its charts are drawn."""
    for scheme in SCHEMES:
        view = page(scheme, width, height)
        view.goto(address, wait_until="domcontentloaded")
        view.wait_for_selector("svg.main-svg")
        view.wait_for_timeout(1500)
        save(view.screenshot(), f"{name}-{scheme}", 1200)
        view.context.close()


def train(folder: Path, name: str, *arguments: str) -> list[str | Path]:
    """The command that trains the example into example/name."""
    example = ROOT / "examples" / "digits.py"
    return [sys.executable, example, "--directory", f"example/{name}", *arguments]


def reports(folder: Path, page: Any) -> None:
    """The report of the front page's run, and one of two runs of the example."""
    run(BIN / "camshaft", "report", "runs/digits", "-o", "one.html", folder=folder)
    look(page, (folder / "one.html").as_uri(), "report", 1040, 900)
    for name, rate in (("digits", "0.002"), ("slower", "0.0005")):
        run(*train(folder, name, "--lr", rate, "--max-epochs", "8"), folder=folder)
    names = ("example/digits", "example/slower")
    run(BIN / "camshaft", "report", *names, "-o", "two.html", folder=folder)
    look(page, (folder / "two.html").as_uri(), "compare", 1240, 930)


def wait_for_rows(file: Path, count: int) -> None:
    """Wait until a run has written some rows."""
    while not file.exists() or len(file.read_text().splitlines()) < count:
        time.sleep(0.5)


def watched(folder: Path, page: Any) -> None:
    """The page of `camshaft watch` while the example trains."""
    command = train(folder, "running", "--max-epochs", "200", "--lr", "0.00005")
    training = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    command = [BIN / "camshaft", "watch", "example/running"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = next(found.group() for line in server.stdout if (found := ADDRESS.search(line)))
        wait_for_rows(folder / "example" / "running" / "rows.jsonl", 60)
        look(page, address, "watch", 1240, 760)
    finally:
        for process in (server, training):
            process.terminate()
            process.wait()


def notebook(folder: Path, page: Any) -> None:
    """The cells of a notebook, executed, and drawn as Jupyter draws them."""
    source = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    (folder / "ipywidgets.py").write_text("raise ImportError")  # live bars need a server,
    os.environ["PYTHONWARNINGS"] = "ignore"  # of which tqdm warns
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(source, resources=place, coalesce_streams=True).execute()
    for theme in SCHEMES:
        exporter = nbconvert.HTMLExporter(template_name="lab", theme=theme)
        (folder / "notebook.html").write_text(exporter.from_notebook_node(source)[0])
        view = page(theme, 900, 1080)
        view.goto((folder / "notebook.html").as_uri(), wait_until="domcontentloaded")
        view.wait_for_timeout(2000)
        save(view.screenshot(), f"notebook-{theme}", 1100)


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    asked = sys.argv[1:] or ["terminal", "reports", "watched", "notebook"]
    os.environ["OMP_NUM_THREADS"] = "1"  # the networks are small
    with tempfile.TemporaryDirectory() as name, browser() as page:
        for each in asked:
            globals()[each](Path(name), page)
