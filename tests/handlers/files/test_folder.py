"""Folders below a run's directory: whole files go into them, and links are not followed."""

import os

import pytest

from camshaft.handlers.files import Folder, folder, safe_name


@pytest.fixture(params=[True, False], ids=["held", "by path"])
def directory(request, tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "CAN_HOLD", request.param)
    return tmp_path / "run"


def test_a_file_is_put_into_folders_that_are_made(directory):
    with Folder(directory, "val", "input") as inside:
        inside.put("5.png", b"old")
        inside.put("5.png", b"new")
    assert (directory / "val" / "input" / "5.png").read_bytes() == b"new"
    assert os.listdir(directory / "val" / "input") == ["5.png"]


@pytest.mark.parametrize("name", ["val", "val/input"])
def test_a_folder_that_is_a_link_is_refused_and_named(directory, name):
    outside = directory.with_name("outside")
    outside.mkdir()
    (directory / name).parent.mkdir(parents=True)
    (directory / name).symlink_to(outside)
    with pytest.raises(NotADirectoryError, match=rf"{name} is not a directory but a link"):
        Folder(directory, "val", "input")
    assert os.listdir(outside) == []


def test_a_link_in_the_place_of_a_file_is_replaced_and_what_it_leads_to_stays(directory):
    (directory.parent / "mine").write_text("mine")
    with Folder(directory) as inside:
        (directory / "5.png").symlink_to(directory.parent / "mine")
        inside.put("5.png", b"new")
    assert (directory / "5.png").read_bytes() == b"new"
    assert (directory.parent / "mine").read_text() == "mine"


def test_the_directory_that_the_user_names_may_be_a_link(directory):
    directory.with_name("disk").mkdir()
    directory.symlink_to(directory.with_name("disk"))
    with Folder(directory, "val") as inside:
        inside.put("5.png", b"new")
    assert (directory.with_name("disk") / "val" / "5.png").exists()


def test_a_link_that_takes_the_place_of_an_open_folder_is_not_followed(tmp_path):
    with Folder(tmp_path, "val") as inside:
        (tmp_path / "val").rename(tmp_path / "moved")
        (tmp_path / "outside").mkdir()
        (tmp_path / "val").symlink_to(tmp_path / "outside")
        inside.put("5.png", b"new")
    assert os.listdir(tmp_path / "moved") == ["5.png"]
    assert os.listdir(tmp_path / "outside") == []


def test_a_file_that_cannot_be_written_leaves_no_half_and_no_folder_open(directory):
    before = len(os.listdir("/dev/fd"))
    with Folder(directory) as inside:
        (directory / "5.png").mkdir()
        with pytest.raises(OSError, match="5.png"):
            inside.put("5.png", b"new")
    (directory / "file").touch()
    with pytest.raises(NotADirectoryError):
        Folder(directory, "file")
    assert sorted(os.listdir(directory)) == ["5.png", "file"]
    assert len(os.listdir("/dev/fd")) == before


def test_halves_of_files_are_swept_and_nothing_else(directory):
    with Folder(directory) as inside:
        (directory / f".tmp-5.png-{'0' * 32}").touch()
        (directory / ".tmp-5.png").touch()
        inside.sweep()
    assert os.listdir(directory) == [".tmp-5.png"]


@pytest.mark.parametrize("name", ["..", ".", "../x", "a/b", "a\0b", "ä/../.."])
def test_a_safe_name_is_the_name_of_one_file(name, tmp_path):
    safe = safe_name(name)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / safe).touch()
    assert os.listdir(tmp_path / "inside") == [safe]
    assert os.listdir(tmp_path) == ["inside"]
