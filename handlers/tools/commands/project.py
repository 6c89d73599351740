"""`camshaft init`: a new project, whose run and test work as they are."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from ...common import aligned, show

FILES = {
    "train.py": "the model and the data, and the start of a run",
    "config.yaml": "what the run is made of",
    "test_train.py": "a test: it learns, and it continues with the same weights",
    "job.sh": "the run as a job of Slurm",
    "README.md": "the commands",
}
"""What a project consists of, each with what it is for."""


def init(path: Path) -> int:
    """Write a project to a directory that is new or empty."""
    if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        raise FileExistsError(f"{path} is not an empty directory; name one that is new or empty")
    path.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in path.resolve().name)
    assets = files(f"{__package__}").joinpath("assets")
    for file in FILES:
        asset = assets.joinpath(f"{file}.txt")  # .txt, so that no tool takes it for our code
        text = asset.read_text(encoding="utf-8").replace("PROJECT", name or "project")
        with (path / file).open("x", encoding="utf-8") as opened:
            opened.write(text)
    show(aligned([(str(path / file), text) for file, text in FILES.items()]))
    return 0
