"""Every state a disk can be in after a power cut in a save: a good checkpoint is always there.

A disk keeps what was synchronised. Of the rest it may keep all, a part or nothing, in any order:
the bytes of a file, and the names in a directory. A save is recorded by looking at the directory
before each operation; then each of these states is built and looked at.
"""

import os
import random
import shutil
from dataclasses import dataclass, field
from itertools import product

import pytest

from camshaft import Events
from camshaft.handlers.checkpoint import checkpoints, weights
from camshaft.handlers.checkpoint.directory import files

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def look(directory):
    """All files by their number, and all directories as names and numbers."""
    files, folders = {}, {}
    for place, names, _ in os.walk(directory):
        entries = {each.name: each.inode() for each in os.scandir(place)}
        folders[os.stat(place).st_ino] = entries
        for name in entries.keys() - set(names):
            with open(os.path.join(place, name), "rb") as file:
                files[entries[name]] = file.read().decode("latin-1")  # for JSON
    return {"files": files, "folders": folders}


def recorded(faults, directory, **options):
    """What a third save does, with the retention that follows it: operations and what they find."""

    def task():
        log, held = [], {}

        def note(name, arguments):
            number = os.fstat(arguments[0]).st_ino if name.endswith("sync") else None
            detail = [os.path.basename(str(each)) for each in arguments if isinstance(each, str)]
            seen = look(directory)
            for place, _, names in os.walk(directory):
                # Held open, or the number of what is removed would become that of something new.
                for each in (place, *(os.path.join(place, name) for name in names)):
                    if (inode := os.stat(each).st_ino) not in held:
                        held[inode] = os.open(each, os.O_RDONLY)
            log.append({"name": name, "number": number, "detail": detail, **seen})

        before = lambda: faults.listen(note, directory)  # noqa: E731
        faults.train(directory, until=3, before=before, **options)
        log.append({"name": "end", "number": None, "detail": [], **look(directory)})
        return [
            {**each, "files": [*each["files"].items()], "folders": [*each["folders"].items()]}
            for each in log
        ]

    log, status = faults.in_child(task)
    assert status == 0
    return [
        {**each, "files": dict(each["files"]), "folders": dict(each["folders"])} for each in log
    ]


@dataclass
class Disk:
    """What is on the disk for sure, and what may be there besides."""

    root: int
    files: dict = field(default_factory=dict)
    folders: dict = field(default_factory=dict)
    now: dict = field(default_factory=dict)

    def see(self, operation):
        self.now = operation
        if operation["name"].endswith("sync"):
            number = operation["number"]
            if number in operation["files"]:
                self.files[number] = operation["files"][number]
            elif number in operation["folders"]:
                self.folders[number] = operation["folders"][number]

    def contents(self, number):
        """What a file may hold: what was synchronised, what was written, or something between."""
        sure, written = self.files.get(number, ""), self.now["files"].get(number, "")
        half = written[: len(written) // 2]
        if sure == written or number not in self.now["files"]:
            return [sure]
        blank = "\0" * len(written)
        choices = [sure, written, half, half + blank[len(half) :], blank]
        return list(dict.fromkeys(choices))

    def listings(self, number):
        """What a directory may list: each change of a name may be there or not."""
        sure, now = self.folders.get(number, {}), self.now["folders"].get(number)
        if now is None:
            return [sure]
        changes = {}
        for name in sorted(sure.keys() | now.keys()):
            if sure.get(name) != now.get(name):
                # What changes at two names is a renaming, which is there or not as a whole.
                changes.setdefault(now.get(name, sure.get(name)), []).append(name)
        found = []
        for chosen in product([False, True], repeat=len(changes)):
            names = dict(sure)
            for is_done, changed in zip(chosen, changes.values(), strict=True):
                for name in changed if is_done else ():
                    names.pop(name, None)
                    if name in now:
                        names[name] = now[name]
            if names not in found:
                found.append(names)
        return found

    def states(self, chance, at_once):
        """Trees that may be found after the power comes back; all of them, if they are few."""
        folders = sorted(self.folders.keys() | self.now["folders"].keys())
        files = sorted(self.files.keys() | self.now["files"].keys())
        choices = [self.listings(each) for each in folders] + [self.contents(f) for f in files]
        count = 1
        for each in choices:
            count *= len(each)
        if count <= at_once:
            picked = product(*choices)
        else:
            picked = [[chance.choice(each) for each in choices] for _ in range(at_once)]
            picked += [[each[0] for each in choices], [each[-1] for each in choices]]
            for number, each in enumerate(choices):  # one thing lost, the rest there, or reversed
                rest = [max(other, key=len) for other in choices]
                picked += [[*rest[:number], one, *rest[number + 1 :]] for one in each]
            picked = chance.sample(picked, min(len(picked), 8 * at_once))
        for each in picked:
            at = len(folders)
            yield (
                dict(zip(folders, each[:at], strict=True)),
                dict(zip(files, each[at:], strict=True)),
            )

    def build(self, state, place):
        folders, files = state

        def put(number, path):
            path.mkdir()
            for name, inner in folders.get(number, {}).items():
                if inner in folders:
                    put(inner, path / name)
                else:
                    (path / name).write_bytes(files.get(inner, "").encode("latin-1"))

        put(self.root, place)


@pytest.fixture(scope="module")
def log_and_directory(faults, tmp_path_factory):
    directory = tmp_path_factory.mktemp("recorded")
    faults.train(directory, until=2)
    first = look(directory)
    log = recorded(faults, directory)
    return first, log, directory


def contents(path):
    return {each.name: each.read_bytes() for each in path.iterdir() if each.name[0] != "m"}


@pytest.mark.parametrize("at_once", [1, pytest.param(48, marks=pytest.mark.soak)])
def test_in_every_state_a_good_checkpoint_is_at_least_the_last_durable_one(
    log_and_directory, tmp_path, at_once
):
    assert look_at_all(*log_and_directory, tmp_path, at_once) > 6 * at_once


@pytest.mark.slow
def test_in_every_state_a_checkpoint_that_shares_files_is_whole(faults, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SMALLEST", 1)
    monkeypatch.setattr(weights, "SMALLEST", 1)
    directory = tmp_path / "recorded"
    faults.train(directory, until=2, frozen=True)
    first = look(directory)
    log = recorded(faults, directory, frozen=True)
    shared = [each["name"] for each in log].count("os.link")
    assert shared == 2  # the frozen weights, and the plain values of the objects
    assert look_at_all(first, log, directory, tmp_path, at_once=48) > 300


def look_at_all(first, log, directory, tmp_path, at_once):
    """Check the checkpoint that is found in each state; how many there are."""
    disk = Disk(directory.stat().st_ino, dict(first["files"]), dict(first["folders"]))
    chance, count, newest, durable = random.Random(0), 0, set(), 2
    for operation in log:
        disk.see(operation)
        if operation["name"] == "end":
            durable = 3  # the run has been told that it is saved
        for state in disk.states(chance, at_once):
            place = tmp_path / "after"
            disk.build(state, place)
            saved = checkpoints(place).latest()
            assert saved is not None, operation
            assert saved.manifest.iteration >= durable, operation
            newest.add(saved.manifest.iteration)
            if saved.manifest.iteration == 3:
                assert contents(saved.path) == contents(directory / saved.path.name)
            shutil.rmtree(place)
            count += 1
    assert newest == {2, 3}
    return count


@pytest.mark.soak
def test_in_every_state_a_checkpoint_whose_place_another_takes_is_there_until_it_is(
    faults, tmp_path
):
    """After the last iteration of an epoch and after the epoch: two saves, one checkpoint."""
    directory, place = tmp_path / "recorded", tmp_path / "after"
    faults.train(directory, until=2)
    first = look(directory)
    log = recorded(faults, directory, when=Events.ITERATION_COMPLETED | Events.EPOCH_COMPLETED)
    disk = Disk(directory.stat().st_ino, dict(first["files"]), dict(first["folders"]))
    chance, durable, began, epochs = random.Random(0), 2, 0, set()
    for operation in log:
        disk.see(operation)
        if operation["name"] == "os.mkdir":
            began += 1
            durable = 3 if began == 2 else 2  # the second save waits for the first
        if began < 2:
            continue
        for state in disk.states(chance, at_once=8):
            disk.build(state, place)
            saved = checkpoints(place).latest()
            assert saved.manifest.iteration >= durable, operation
            epochs.add(saved.manifest.epoch)
            shutil.rmtree(place)
    assert (began, epochs) == (2, {0, 1})
    assert sorted(each.name for each in directory.glob("iter*")) == [
        "iteration-0000000002",
        "iteration-0000000003",
    ]


def newest_in(place):
    """The iteration of the checkpoint that is chosen, or 0."""
    try:
        saved = checkpoints(place).latest()
    except ValueError:
        return 0
    return 0 if saved is None else saved.manifest.iteration


def test_a_save_that_did_not_wait_for_the_disk_would_be_found(log_and_directory, tmp_path):
    first, log, directory = log_and_directory
    disk = Disk(directory.stat().st_ino, dict(first["files"]), dict(first["folders"]))
    disk.see({**log[-1], "name": "nothing waits"})
    for number, state in enumerate(disk.states(random.Random(0), at_once=48)):
        disk.build(state, tmp_path / str(number))
        if newest_in(tmp_path / str(number)) < 3:
            return
    pytest.fail("no state was without the new checkpoint")


def test_each_step_waits_for_the_one_before_to_be_on_the_disk(log_and_directory):
    """Files, the manifest, their directory, one renaming, its directory, LATEST, then the old."""
    _, log, directory = log_and_directory
    root, new = directory.stat().st_ino, "iteration-0000000003"
    order = []
    for operation in log:
        if operation["name"].endswith("sync"):
            folders = operation["folders"]
            here = [f for f, names in folders.items() if operation["number"] in names.values()]
            names = {number: name for f in here for name, number in folders[f].items()}
            order.append(
                ("sync", "/" if operation["number"] == root else names[operation["number"]])
            )
        elif operation["name"] == "os.rename":
            order.append(("rename", operation["detail"][-1]))
    place = order.index(("rename", new))
    synced = [name for kind, name in order[:place] if kind == "sync"]
    files = [name for name in synced if name.endswith((".safetensors", ".json"))]
    objects = {"model.safetensors", "train.safetensors", "state.json"}
    of_rank = {"rank-00000.json", "rank-00000.safetensors"}
    assert set(files) == objects | of_rank | {"manifest.json"}
    assert files[-1] == "manifest.json"
    assert synced[-1].startswith(".tmp-")
    assert synced[-2] == "manifest.json"
    latest = order.index(("rename", "LATEST"))
    assert ("sync", "/") in order[place:latest]
    old = next(n for n, (kind, name) in enumerate(order) if kind == "rename" and "del" in name)
    assert ("sync", "/") in order[latest:old]
