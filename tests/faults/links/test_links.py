"""What lies in a directory that came from elsewhere, under a name that a run will open.

Each writer runs twice, and the names that come again are found out: these can be prepared. Then
each of them is a link, a pipe or the like before a run begins, or before it goes on.
"""

import os
import shutil
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*fork:DeprecationWarning", "ignore:no logger shows"
)


def tree(directory):
    """Everything below a directory: links by where they lead, files by their bytes."""
    return {
        path.relative_to(directory): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in sorted(directory.rglob("*"))
    }


def begin(use, directory):
    """What is there before a run goes on, or before a command."""
    getattr(use, "prepare", lambda directory: use(directory, 1))(directory)


def recorded(use, directory):
    """The names below a directory that a run and the next one touch; those that either changes."""
    touched, changed = set(), {False: set(), True: set()}
    begun = False

    def hear(event, arguments):
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            writes = event != "open" or (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
            for each in map(str, arguments[:2]):
                if each.startswith(f"{directory}/"):
                    touched.add(name := os.path.relpath(each, directory))
                    changed[begun].update([name] if writes else [])

    sys.addaudithook(hear)
    begin(use, directory)
    touched.update(str(path.relative_to(directory)) for path in directory.rglob("*"))
    begun = True
    use(directory, 2)
    touched.update(str(path.relative_to(directory)) for path in directory.rglob("*"))
    return sorted(touched), sorted(changed[False]), sorted(changed[True])


def names_of(use, faults, place):
    """The names that come again: the others hold a time, or a random part."""
    found = []
    for each in ("first", "second"):
        names, status = faults.in_child(lambda each=each: recorded(use, place / each))
        assert status == 0
        found.append(names)
    touched, *changed = (set(one) & set(two) for one, two in zip(*found, strict=True))
    return sorted(touched), changed


def link(path, outside):
    """A link to what was there, or to a file."""
    if path.exists():
        shutil.move(path, outside / "mine")
    else:
        (outside / "mine").write_text("mine")
    path.symlink_to(outside / "mine")


def dangling(path, outside):
    clear(path)
    path.symlink_to(outside / "nowhere")


def folder_link(path, outside):
    clear(path)
    (outside / "folder").mkdir()
    (outside / "folder" / path.name).write_text("mine")
    path.symlink_to(outside / "folder")


def hard_link(path, outside):
    if path.is_file():
        shutil.move(path, outside / "mine")
    else:
        clear(path)
        (outside / "mine").write_text("mine")
    path.hardlink_to(outside / "mine")


def pipe(path, outside):
    clear(path)
    os.mkfifo(path)


def folder(path, outside):
    clear(path)
    path.mkdir()


def clear(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def has_another_name(path, name):
    """True if the run has used the next number: `earlier.2`, `iteration-0000000002.2`."""
    first = Path(name).parts[0]
    others = path.parents[len(Path(name).parts) - 1].glob(f"{first.partition('.')[0]}.*")
    return any(each.is_dir() and not each.is_symlink() for each in others if each.name != first)


@contextmanager
def no_hang(about):
    def end(*_):
        raise AssertionError(f"{about} hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(20)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


KINDS = [
    link,
    *(
        pytest.param(each, marks=pytest.mark.soak)
        for each in (folder_link, hard_link, pipe, dangling, folder)
    ),
]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_outside_of_the_directory_changes_and_what_is_refused_is_named(
    writer, kind, faults, tmp_path, caplog, capfd
):
    names, changed = names_of(writer, faults, tmp_path)
    base = tmp_path / "base"
    begin(writer, base)
    for number, name in enumerate(names):
        for begun in (True,) if hasattr(writer, "prepare") else (False, True):
            place = tmp_path / f"{number}-{begun}"
            outside, directory = place / "outside", place / "run"
            outside.mkdir(parents=True)
            if begun:
                shutil.copytree(base, directory, symlinks=True)
                if (saves := tmp_path / "base saves").exists():
                    shutil.copytree(saves, place / "run saves")
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            kind(path, outside)
            before = tree(outside)
            caplog.clear()
            said = ""
            with no_hang(name):
                try:
                    writer(directory, 2)
                except (OSError, ValueError) as error:
                    said = str(error)
            assert tree(outside) == before, name
            said += caplog.text + "".join(capfd.readouterr())
            if name in changed[begun] and (path.is_symlink() or path.is_fifo()):
                is_told = path.name in said or has_another_name(path, name)
                assert is_told, name
            shutil.rmtree(place)


def test_every_handler_that_takes_a_path_is_among_them(left_out):
    assert left_out == set()
