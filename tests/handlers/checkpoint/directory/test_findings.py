"""A look at a path: a directory of checkpoints, one of them, or none."""

import os

import pytest

from camshaft.handlers.checkpoint.directory import NoCheckpointError, is_checkpoint, look


def test_a_checkpoint_is_told_from_a_directory_of_some(save, tmp_path):
    path = save(1)
    assert is_checkpoint(path)
    assert not is_checkpoint(tmp_path / "run")
    os.remove(path / "manifest.json")
    assert is_checkpoint(path)


def test_a_quick_look_compares_sizes_and_a_thorough_one_all(save, tmp_path):
    cut, changed, whole = save(1), save(2), save(3)
    os.truncate(cut / "state.json", 3)
    (changed / "state.json").write_bytes(b"x" * (changed / "state.json").stat().st_size)

    def broken(thoroughly):
        found = look(tmp_path / "run", thoroughly=thoroughly)
        return [each.path for each in found if each.problem is not None]

    assert broken(thoroughly=False) == [cut]
    assert broken(thoroughly=True) == [cut, changed]
    assert look(whole, thoroughly=True)[0].problem is None


def test_nothing_is_an_error_of_its_own(tmp_path):
    with pytest.raises(NoCheckpointError):
        look(tmp_path, thoroughly=False)
