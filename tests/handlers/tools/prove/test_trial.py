"""A trial's copy of a working directory leaves the user's own alone."""

import json

import pytest

from camshaft.handlers.tools.prove.hook import Hook
from camshaft.handlers.tools.prove.trial import mirror


@pytest.fixture
def home(tmp_path):
    """A working directory with sources, a run, and data that are large."""
    home = tmp_path / "home"
    for folder in ("pkg", "runs/a/iteration-0000000003", "data/deep", ".git"):
        (home / folder).mkdir(parents=True)
    (home / "pkg/train.py").write_text("source")
    (home / "runs/a/rows.jsonl").write_text("rows")
    (home / "data/large.tar").write_bytes(bytes(2 << 20))
    (home / "data/deep/small.txt").write_text("small")
    return home


@pytest.fixture
def hook(home, tmp_path):
    """A process in the copy, which writes to nothing but the copy."""
    place = tmp_path / "place"
    mirror(home, place, skip=tmp_path / "no")
    given = {
        "home": str(home),
        "place": str(place),
        "notes": str(tmp_path),
        "start": 0,
        "kill": None,
        "replay": None,
    }
    (tmp_path / "trial.json").write_text(json.dumps(given))
    return Hook(str(tmp_path / "trial.json"))


def test_small_files_are_copied_and_large_ones_and_runs_are_links(home, hook, tmp_path):
    place = tmp_path / "place"
    assert (place / "pkg/train.py").read_text() == "source"
    links = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_symlink()}
    assert links == {"runs/a", "data/large.tar", ".git"}


def test_what_is_written_becomes_the_trials_own_first(home, hook, tmp_path):
    place = tmp_path / "place"
    hook._write(place / "runs/a/rows.jsonl", "copy")  # of a run: it begins empty
    assert not (place / "runs/a").is_symlink()
    assert [*(place / "runs/a").iterdir()] == []
    hook._write(place / "data/large.tar", "copy")
    assert not (place / "data/large.tar").is_symlink()
    assert (place / "data/large.tar").stat().st_size == 2 << 20
    hook._write(place / ".git/config", "empty")
    assert not (place / ".git").is_symlink()
    assert (home / "runs/a/rows.jsonl").read_text() == "rows"


def test_a_path_of_the_user_is_refused_with_what_to_do(home, hook, tmp_path):
    with pytest.raises(PermissionError, match="absolute path"):
        hook._write(home / "runs/b/rows.jsonl", "copy")
    (note,) = [json.loads(line) for line in next(tmp_path.glob("000-*")).read_text().splitlines()]
    assert "relative to its working directory" in note["problem"]
    hook._write(home / "pkg/__pycache__/train.pyc", "empty")  # Python's own


def test_a_file_that_has_another_name_of_the_users_is_copied_before_it_is_written(
    home, hook, tmp_path
):
    place = tmp_path / "place"
    (place / "pkg/train.py").unlink()
    (place / "pkg/train.py").hardlink_to(home / "pkg/train.py")
    hook._write(place / "pkg/train.py", "copy")
    (place / "pkg/train.py").write_text("other")
    assert (home / "pkg/train.py").read_text() == "source"


def test_of_a_run_that_is_asked_for_all_but_checkpoints_is_copied(home, tmp_path):
    mirror(home, tmp_path / "place", skip=tmp_path / "no", run=home / "runs/a")
    assert [each.name for each in (tmp_path / "place/runs/a").iterdir()] == ["rows.jsonl"]
    assert not (tmp_path / "place/runs/a/rows.jsonl").is_symlink()
