"""Files of a run are opened only if they are regular: nothing waits, and no link is followed."""

import errno
import fcntl
import mmap
import os
import resource
import signal
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
    written_past_cache,
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


BLOCK = 2**16


def is_cached(path, position):
    """Whether the system's cache has a block of a file; None where it cannot be asked."""
    with path.open("rb") as file:
        try:
            return bool(os.preadv(file.fileno(), [bytearray(1)], position, os.RWF_NOWAIT))
        except BlockingIOError:
            return False
        except (AttributeError, OSError):
            return None


def test_a_file_of_parts_past_the_cache_and_others_holds_all_of_them_in_order(tmp_path):
    memory = mmap.mmap(-1, 4 * BLOCK)
    memory[:] = content = os.urandom(4 * BLOCK)
    blocks = [memoryview(memory)[at : at + BLOCK] for at in range(0, 4 * BLOCK, BLOCK)]
    expected, cached = content[: 3 * BLOCK] + b"odd" + content[3 * BLOCK :], set()
    for number in range(5):  # the system may read a block ahead, or write one by the cache
        path = tmp_path / f"file-{number}"
        with created(path) as file:
            taken = written_past_cache(file, blocks[0])
            file.write(blocks[0][taken:])
            file.write(blocks[1])
            second = written_past_cache(file, blocks[2])
            file.write(blocks[2][second:])
            file.write(b"odd")
            assert written_past_cache(file, blocks[3]) == 0  # at a position between two blocks
            file.write(blocks[3])
            assert not fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_DIRECT
        assert taken == second
        cached.add((is_cached(path, 0), is_cached(path, BLOCK)) if taken else (None, None))
        assert path.read_bytes() == expected
    assert cached & {(False, True), (None, None)}


def test_memory_that_no_disk_can_read_is_left_to_the_cache(tmp_path):
    odd = memoryview(bytearray(BLOCK + 8)).cast("B")[3 : 3 + BLOCK]
    with created(tmp_path / "file") as file:
        file.write(odd[written_past_cache(file, odd) :])
    assert (tmp_path / "file").read_bytes() == bytes(odd)


def test_a_full_disk_is_an_error_also_past_the_cache(tmp_path, in_child):
    def task():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        try:
            with created(tmp_path / "file") as file:
                memory = memoryview(mmap.mmap(-1, BLOCK))
                file.write(memory[written_past_cache(file, memory) :])
        except OSError as error:
            return error.errno

    assert in_child(task) == (errno.EFBIG, 0)


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
