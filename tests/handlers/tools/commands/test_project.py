"""`camshaft init`: what it writes runs, and its test passes."""

import subprocess
import sys

import pytest
import yaml

from camshaft.handlers import checkpoints


@pytest.mark.slow
def test_the_project_runs_is_continued_and_passes_its_test(camshaft, tmp_path):
    place = tmp_path / "my project"
    code, lines, errors = camshaft("init", place)
    assert (code, errors, len(lines)) == (0, [], 5)
    assert sorted(each.name for each in place.iterdir()) == [
        *("README.md", "config.yaml", "job.sh", "test_train.py", "train.py"),
    ]
    assert "#SBATCH --job-name=my-project\n" in (place / "job.sh").read_text()
    assert (place / "README.md").read_text().startswith("# my-project\n")
    python = [sys.executable, "-W", "error::UserWarning"]
    tests = subprocess.run(
        [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert tests.returncode == 0, tests.stdout
    assert "2 passed" in tests.stdout
    for epochs in (1, 2):
        command = [*python, "train.py", f"run.max_epochs={epochs}"]
        subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=100)
    newest = checkpoints(place / "runs" / "first").latest()
    assert (newest.manifest.epoch, newest.manifest.iteration) == (2, 64)


def test_what_is_written_is_in_the_style_of_this_house_and_the_job_is_a_script(camshaft, tmp_path):
    camshaft("init", tmp_path)
    files = [tmp_path / "train.py", tmp_path / "test_train.py"]
    for check in (["check", "--isolated", "--select=E,F,I,UP,B"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *check, "--line-length=100", *map(str, files)]
        assert subprocess.run(ruff, capture_output=True).returncode == 0, check
    assert subprocess.run(["bash", "-n", tmp_path / "job.sh"]).returncode == 0
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["handlers"]["save"]["resume"] is True


@pytest.mark.parametrize("there", ["a file", "a directory with a file", "a link"])
def test_a_place_that_is_not_empty_is_refused_and_stays_as_it_is(camshaft, tmp_path, there):
    place = tmp_path / "project"
    if there == "a file":
        place.write_text("mine")
    elif there == "a link":
        (tmp_path / "other").mkdir()
        place.symlink_to(tmp_path / "other")
    else:
        place.mkdir()
        (place / "mine").touch()
    before = sorted(tmp_path.rglob("*"))
    code, lines, errors = camshaft("init", place)
    assert (code, lines) == (1, [])
    why = "is not an empty directory; name one that is new or empty"
    assert errors == [f"camshaft: {place} {why}"]
    assert sorted(tmp_path.rglob("*")) == before
