"""Files of a run are opened only if they are regular: nothing waits, and no link is followed."""

import os
import socket
from contextlib import contextmanager
from pathlib import Path

import pytest

from camshaft.handlers.files import (
    NotRegularError,
    RemovedError,
    appending,
    created,
    refuse_removed,
    regular,
    size_of,
)


def link(path):
    (path.parent / "outside").write_text("mine")
    path.symlink_to(path.parent / "outside")


def dangling(path):
    path.symlink_to(path.parent / "nowhere")


def at_socket(path):
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


@contextmanager
def appended(path):
    os.close(appending(path))
    yield


@contextmanager
def sized(path):
    yield size_of(path)


@pytest.mark.parametrize("how", [regular, appended, sized])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (link, "link"),
        (dangling, "link"),
        (os.mkfifo, "pipe"),
        (os.mkdir, "directory"),
        (at_socket, "socket"),
    ],
)
def test_what_is_no_regular_file_is_refused_at_once_and_named(tmp_path, make, kind, how):
    path = tmp_path / "it"
    make(path)
    with pytest.raises(NotRegularError) as caught, how(path):
        pass
    assert f"{path} is not a regular file but a {kind}; " in str(caught.value)
    assert not (tmp_path / "nowhere").exists()


def test_a_device_is_refused():
    with pytest.raises(NotRegularError, match="but a device"), regular(Path(os.devnull)):
        pass


@pytest.mark.parametrize("make", [link, dangling, os.mkfifo, os.mkdir])
def test_a_new_file_is_made_only_where_nothing_is(tmp_path, make):
    path = tmp_path / "it"
    make(path)
    with pytest.raises(FileExistsError), created(path):
        pass
    assert not (tmp_path / "nowhere").exists()
    with created(tmp_path / "new") as file:
        file.write(b"new")
    assert (tmp_path / "new").read_bytes() == b"new"


def test_lines_are_not_added_to_a_file_that_has_another_name_too(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "it").hardlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="it is one file with another name"):
        appending(tmp_path / "it")


def test_the_folder_around_a_file_may_be_a_link_of_the_users_own(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    descriptor = appending(tmp_path / "runs" / "rows")
    os.write(descriptor, b"row")
    os.close(descriptor)
    with regular(tmp_path / "runs" / "rows") as file:
        assert file.read() == b"row"


def test_an_open_file_is_removed_once_no_name_is_left_but_not_when_it_is_moved(tmp_path):
    descriptor = appending(tmp_path / "it")
    (tmp_path / "it").rename(tmp_path / "moved")
    refuse_removed(descriptor, tmp_path / "it")
    (tmp_path / "moved").unlink()
    with pytest.raises(RemovedError, match="it was removed while the run wrote to it"):
        refuse_removed(descriptor, tmp_path / "it")
    os.close(descriptor)
