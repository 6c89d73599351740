"""Where a run runs: what helps to run it again, and nothing private."""

import os
import platform
import subprocess
import sys

import torch

from camshaft.handlers.journal.environment import environment


def test_it_names_versions_and_machine_but_no_path():
    facts = environment()
    assert facts["python"] == platform.python_version()
    assert facts["torch"] == torch.__version__
    assert facts["ranks"] == "1"
    assert "cores" in facts["devices"] or " x " in facts["devices"]
    assert not [fact for fact in facts.values() if os.sep in fact]


def git(folder, *arguments):
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


def commit_of(script):
    code = "from camshaft.handlers.journal.environment import environment as e;print(e()['commit'])"
    script.write_text(code)
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_it_names_the_commit_of_the_script_and_says_if_a_file_was_changed(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "data").write_text("one")
    git(tmp_path, "add", "data")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "tag", "-a", "v1", "-m", "a tag that is not meant")
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True
    ).stdout.strip()
    assert commit_of(tmp_path / "train.py") == head
    (tmp_path / "data").write_text("two")
    assert commit_of(tmp_path / "train.py") == f"{head}-dirty"
