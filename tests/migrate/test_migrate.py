"""The pages for people who come from another library: both scripts run, and end alike."""

import hashlib
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from camshaft.handlers import checkpoints

HERE = Path(__file__).parent
PAGES = HERE.parents[1] / "docs" / "migrate"
LIBRARIES = {  # the page, and what its first script imports
    "accelerate": "accelerate",
    "accelhydra": "accel_hydra",
    "composer": "composer",
    "fabric": "lightning_fabric",
    "keras": "keras",
    "mini-trainer": "trainloop",
    "monai": "monai",
    "pymarlin": "pymarlin",
    "pytorch-accelerated": "pytorch_accelerated",
    "torchtnt": "torchtnt",
    "transformers": "transformers",
}
OTHER_WEIGHTS = {"composer", "keras"}
"""The pages that do not claim the same weights."""
END = """
import hashlib
weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
print("\\nweights", hashlib.sha256(weights).hexdigest())
"""
QUIET = {"HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "torch"}


def installed(library):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


def scripts_of(name):
    """The script for the other library that a page shows, and the one for Camshaft."""
    page = (PAGES / f"{name}.md").read_text()
    theirs, ours = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    stand_in = HERE / name / "stand_in.py"
    return {
        "theirs": f"{stand_in.read_text() if stand_in.exists() else ''}\n{theirs}",
        "ours": ours,
    }


def ended(processes, name, who, folder):
    (script := folder / who / "script.py").parent.mkdir()
    script.write_text(f"{scripts_of(name)[who]}\n{END}")
    printed = processes.run(script, cwd=script.parent, env=QUIET).stdout
    return re.findall(r"^weights \w+", printed, re.M)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LIBRARIES.keys() - OTHER_WEIGHTS))
def test_both_scripts_of_a_page_end_with_the_same_weights(processes, name, tmp_path):
    installed(LIBRARIES[name])
    theirs, ours = (ended(processes, name, who, tmp_path) for who in ("theirs", "ours"))
    assert len(ours) == 1
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config", "directory"),
    [("accelhydra", "train.yaml", "experiments/digits"), ("pymarlin", "config.yaml", "outputs")],
)
def test_the_config_of_a_page_is_the_run_of_its_script(
    processes, tmp_path, name, config, directory
):
    page = (PAGES / f"{name}.md").read_text()
    for file, text in re.findall(r'```\w+ title="(.+?)"\n(.*?)```', page, re.DOTALL):
        (tmp_path / file).write_text(text)
    command = "from camshaft.__main__ import main\nraise SystemExit(main())"
    processes.run(command, "run", config, cwd=tmp_path)
    by_config = checkpoints(tmp_path / directory).latest().state_dict("model").values()
    found = hashlib.sha256(b"".join(each.numpy().tobytes() for each in by_config)).hexdigest()
    assert ended(processes, name, "ours", tmp_path) == [f"weights {found}"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OTHER_WEIGHTS))
@pytest.mark.parametrize("who", ["theirs", "ours"])
def test_the_scripts_of_a_page_of_other_weights_run(processes, name, who, tmp_path):
    installed(LIBRARIES[name] if who == "theirs" else "camshaft")
    assert ended(processes, name, who, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "last"),
    [
        ("accelerate", -24.253),
        ("pytorch_accelerated", -24.253),
        ("transformers", -48.506),
        ("camshaft", -48.506),
    ],
)
def test_the_gradient_of_a_short_window_is_the_one_that_the_pages_tell(
    processes, library, last, tmp_path
):
    installed(library)
    script = HERE / "short_windows.py"
    shown = processes.run(script, library, cwd=tmp_path, env=QUIET).stdout
    assert f"gradients -5.0 -24.875 {last}\n" in shown


def test_each_page_that_names_this_test_shows_two_scripts_that_it_runs():
    naming = {page.stem for page in PAGES.glob("*.md") if Path(__file__).name in page.read_text()}
    assert naming == LIBRARIES.keys()
    for name in naming:
        for source in scripts_of(name).values():
            compile(source, name, "exec")
