"""One checkpoint on the disk: found by its manifest, verified in whole or in part."""

import errno
import logging
import os

import pytest
import torch

from camshaft.handlers.checkpoint.directory import Directory, checkpoints, scan, verify_files
from camshaft.handlers.checkpoint.format import Manifest, UnreadCheckpoint
from camshaft.handlers.checkpoint.save.snapshot import Snapshot


def save(directory, iteration=0):
    tensors = {"model": {"matrix": torch.ones(2, 3)}, "train": {}}
    files = Snapshot({"state.json": {"plain": [1, "two"]}}, tensors).streamed()
    return Directory(directory).write(files, Manifest(iteration=iteration))


def test_checkpoints_are_listed_in_the_order_of_writing(tmp_path):
    for iteration in (10, 20, 5, 20):
        save(tmp_path, iteration)
    listed = [(each.manifest.number, each.path.name[-4:]) for each in checkpoints(tmp_path)]
    assert listed == [(1, "0010"), (2, "0020"), (3, "0005"), (4, "20.2")]
    assert checkpoints(tmp_path / "nowhere") == []


def test_what_is_not_ours_is_not_listed(tmp_path):
    for name in ("iteration-5", "iteration-000000000x", "notes", "step-0000000001", "corrupt-x"):
        (tmp_path / name).mkdir()
    (tmp_path / "iteration-0000000005.txt").touch()
    assert scan(tmp_path) == ([], {})


def test_a_manifest_without_the_state_is_no_whole_checkpoint(tmp_path):
    (tmp_path / "iteration-0000000001").mkdir()
    (tmp_path / "iteration-0000000001/manifest.json").write_text(Manifest(1, 1).to_json())
    with pytest.raises(ValueError, match=r"does not list state\.json"):
        verify_files(checkpoints(tmp_path)[0])


def test_a_checkpoint_that_cannot_be_dropped_stays_with_a_warning(tmp_path, caplog):
    saved = save(tmp_path)
    Directory(saved.path.parent).drop(saved)
    with caplog.at_level(logging.WARNING, "camshaft"):
        Directory(saved.path.parent).drop(saved)
    assert "no longer wanted, but stays" in caplog.text


def test_a_checkpoint_is_shown_by_its_path(tmp_path):
    saved = save(tmp_path, 7)
    assert repr(saved) == f"Saved(path={saved.path!r})"
    assert saved.manifest.size == sum(
        path.stat().st_size for path in saved.path.iterdir() if path.name != "manifest.json"
    )


@pytest.mark.parametrize("file", ["manifest.json", "state.json", "train.safetensors"])
def test_what_the_system_cannot_read_now_is_not_passed_over_for_an_older_one(
    tmp_path, monkeypatch, file
):
    for iteration in (1, 2):
        save(tmp_path, iteration)
    opened, path = os.open, str(tmp_path / "iteration-0000000002" / file)

    def refuse(name, *arguments, **options):
        if str(name) == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(name, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    found = checkpoints(tmp_path)
    with pytest.raises(UnreadCheckpoint, match=f"2 could not be read: {file}.*Input/output error"):
        found.latest()
    monkeypatch.undo()
    assert checkpoints(tmp_path).latest().manifest.iteration == 2
    for name in ("manifest.json", "state.json"):
        (tmp_path / "iteration-0000000002" / name).unlink(missing_ok=True)
    assert checkpoints(tmp_path).latest().manifest.iteration == 1


def test_what_another_user_must_not_read_or_write_is_no_damage_and_can_be_a_parent(
    tmp_path, monkeypatch
):
    save(tmp_path, 1)
    opened = os.open

    def refuse(name, *arguments, **options):
        if str(name).endswith(("manifest.json", "LOCK")):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(name))
        return opened(name, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UnreadCheckpoint, match="could not be read: manifest.json.*Permission deni"):
        checkpoints(tmp_path).latest()
    with pytest.raises(PermissionError) as caught:
        Directory(tmp_path).lock()
    assert f"resume=True, parent={str(tmp_path)!r})" in caught.value.__notes__[0]
