"""The pages for people who come from another library: both scripts run, and end alike."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGES = HERE.parents[1] / "docs" / "migrate"
LIBRARIES = {  # the page, and what its first script imports
    "accelerate": "accelerate",
    "accelhydra": "accel_hydra",
    "fabric": "lightning_fabric",
    "keras": "keras",
    "mini-trainer": "trainloop",
    "pymarlin": "pymarlin",
    "pytorch-accelerated": "pytorch_accelerated",
    "transformers": "transformers",
}
END = """
import hashlib
weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
print("\\nweights", hashlib.sha256(weights).hexdigest())
"""
QUIET = {"HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "torch"}


def installed(library):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


def ended(processes, script, folder):
    stand_in = script.with_name("stand_in.py")
    parts = [stand_in] if stand_in.exists() and script.stem == "theirs" else []
    folder.mkdir()
    whole = folder / "script.py"
    whole.write_text("\n".join([*(each.read_text() for each in [*parts, script]), END]))
    return re.findall(r"^weights \w+", processes.run(whole, cwd=folder, env=QUIET).stdout, re.M)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LIBRARIES.keys() - {"keras"}))
def test_both_scripts_of_a_page_end_with_the_same_weights(processes, name, tmp_path):
    installed(LIBRARIES[name])
    theirs = ended(processes, HERE / name / "theirs.py", tmp_path / "theirs")
    ours = ended(processes, HERE / name / "ours.py", tmp_path / "ours")
    assert len(ours) == 1
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("who", ["theirs", "ours"])
def test_the_scripts_of_the_page_for_keras_run(processes, who, tmp_path):
    installed("keras" if who == "theirs" else "camshaft")
    assert ended(processes, HERE / "keras" / f"{who}.py", tmp_path / who)


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


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_a_page_shows_the_scripts_that_the_tests_run(name):
    shown = re.findall(r"```python\n(.*?)```", (PAGES / f"{name}.md").read_text(), re.DOTALL)
    assert shown == [(HERE / name / f"{who}.py").read_text() for who in ("theirs", "ours")]
