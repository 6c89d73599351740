"""Names in a directory: there at once or not at all."""

import errno
import os

import pytest

from camshaft.handlers.files import (
    NotRegularError,
    appearing,
    link_folder,
    make_directory,
    make_directory_inside,
    replacing,
    safe_name,
)


def test_a_directory_appears_whole(tmp_path):
    with appearing(tmp_path / "place") as temporary:
        temporary.mkdir()
        (temporary / "file").write_text("content")
        assert not (tmp_path / "place").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["place"]
    assert (tmp_path / "place/file").read_text() == "content"


def test_a_file_replaces_the_one_before(tmp_path):
    for text in ("first", "second"):
        with appearing(tmp_path / "LATEST") as temporary:
            temporary.write_text(text)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("LATEST", "second")]


def half_written(place, error):
    with appearing(place) as temporary:
        temporary.mkdir()
        (temporary / "file").touch()
        raise error


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_after_an_error_nothing_is_left(tmp_path, error):
    (tmp_path / "other").touch()
    with pytest.raises(type(error)):
        half_written(tmp_path / "place", error)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


@pytest.fixture
def synchronised(monkeypatch):
    """The paths of what was brought to the disk, in order."""
    paths, original = [], os.fsync

    def note(descriptor):
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return paths


def test_the_parent_of_each_new_directory_is_on_the_disk_before_the_next_is_made(
    tmp_path, synchronised
):
    make_directory(tmp_path / "a/b/c")
    make_directory(tmp_path / "a/b/c")
    assert synchronised == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a/b")]


def test_a_link_that_leads_nowhere_is_told_of_with_the_place_it_leads_to(tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    with pytest.raises(NotADirectoryError, match="runs is a link to .*disk, where no directory is"):
        make_directory(tmp_path / "runs" / "a")


def test_a_file_is_replaced_all_at_once_and_a_failure_leaves_the_old_one(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"%d" % (1 // 0))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("page.html", "old")]
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("page.html", "new")]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("mine")])
def test_only_a_file_is_replaced(make, tmp_path):
    make(tmp_path / "page.html")
    with pytest.raises(NotRegularError), replacing(tmp_path / "page.html"):
        pass
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_inside_is_made_and_the_directory_around_it_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    for _ in range(2):
        folder = make_directory_inside(tmp_path / "run", "val", "input")
    (folder / "5.png").touch()
    assert (tmp_path / "disk/val/input/5.png").exists()


@pytest.mark.parametrize("name", ["val", "val/input"])
def test_a_folder_inside_that_is_a_link_is_refused_and_named(name, tmp_path):
    (outside := tmp_path / "outside").mkdir()
    (tmp_path / "run" / name).parent.mkdir(parents=True)
    (tmp_path / "run" / name).symlink_to(outside)
    with pytest.raises(NotADirectoryError, match=rf"{name} is not a directory but a link"):
        make_directory_inside(tmp_path / "run", "val", "input")
    assert os.listdir(outside) == []


@pytest.mark.parametrize("name", ["..", ".", "../x", "a/b", "a\0b", "ä/../.."])
def test_a_safe_name_is_the_name_of_one_file(name, tmp_path):
    safe = safe_name(name)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / safe).touch()
    assert os.listdir(tmp_path / "inside") == [safe]
    assert os.listdir(tmp_path) == ["inside"]


def test_a_folder_gets_a_second_name_that_shares_the_bytes_of_its_files(tmp_path):
    source, place = tmp_path / "run" / "one", tmp_path / "kept" / "one"
    (source / "inner").mkdir(parents=True)
    for name in ("a", "inner/b"):
        (source / name).write_text(name)
    for _ in range(2):  # a killed process may have left it, also half of it
        place.parent.mkdir(exist_ok=True)
        (place.parent / f".tmp-one-{'0' * 32}").mkdir()
        assert link_folder(source, place)
        assert [path.name for path in place.parent.iterdir()] == ["one"]
        assert all((source / name).samefile(place / name) for name in ("a", "inner/b"))
        (place / "a").unlink()
    assert (source / "a").read_text() == "a"


def test_where_files_cannot_have_second_names_nothing_is_left(tmp_path, monkeypatch):
    def refuse(source, place, **options):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    (source := tmp_path / "one").mkdir()
    (source / "a").touch()
    monkeypatch.setattr(os, "link", refuse)
    assert not link_folder(source, tmp_path / "kept" / "one")
    assert list((tmp_path / "kept").iterdir()) == []
