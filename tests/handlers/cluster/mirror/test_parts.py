"""Hosts that share no directory copy parts, each to a prefix of its own; readers join them."""

from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.handlers import fetch, latest
from camshaft.handlers.checkpoint.directory import Directory
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.save.snapshot import Snapshot
from camshaft.handlers.cluster.mirror.listing import DRAFT, StoreListing
from camshaft.handlers.cluster.mirror.logs import LOGS
from camshaft.handlers.cluster.mirror.parts import Host, Outbox
from camshaft.handlers.cluster.mirror.store import Store
from camshaft.handlers.cluster.mirror.uploader import Uploader

from .conftest import content_of
from .faulty import NOTHING, Faulty, Killed


class Job:
    """A run on some hosts, one rank each; their processes that copy take turns."""

    def __init__(self, base, size):
        self.base, self.numbers, self.contents = base, count(1), {}
        self.newest = -1
        """The number of the newest checkpoint that was whole in the store."""
        self.start(size)

    def start(self, size):
        """A new start of the run, perhaps on another number of hosts."""
        self.hosts = [Host(number, size, [number], size) for number in range(size)]
        self.outboxes = [Outbox(self.base / f"disk-{host.number}", host) for host in self.hosts]
        self.uploaders = [*map(self.process, range(size))]

    def process(self, number):
        store = Store(f"faulty://{self.base}/store", {})
        directory = self.base / f"disk-{number}"
        directory.mkdir(exist_ok=True)
        where = self.hosts[number], self.outboxes[number].folder
        return Uploader(store, directory, list(LOGS), *where)

    def save(self, lacking=None):
        """A checkpoint, which is copied if all hosts are free; one may lack its part."""
        number, size = next(self.numbers), len(self.hosts)
        states = {f"rank-{rank:05d}.json": {"rank": rank} for rank in range(size)}
        tensors = {f"rank-{rank:05d}": {"w": torch.full((3,), 1.0 * number)} for rank in range(2)}
        content = Snapshot({"state.json": {"objects": {}}, **states}, tensors).streamed()
        manifest = Manifest(iteration=number, keep=repr(latest(1)), world_size=size)
        saved = Directory(self.base / "saves").write(content, manifest)
        self.contents[number] = content_of(saved.path)
        if all(each.is_empty() for each in self.outboxes):
            for rank, each in enumerate(self.outboxes):
                assert rank == lacking or each.put(saved) == ""
        return number

    def turn(self, number, fault=None, at=0):
        """One process acts, and perhaps fails or is killed at an operation."""
        left = iter(range(at))

        def before(operation, path):
            if fault and next(left, None) is None:
                raise Killed if fault == "kill" else OSError("503 SlowDown")

        Faulty.before = before
        try:
            with suppress(OSError):
                self.uploaders[number].step()
        except Killed:
            self.uploaders[number] = self.process(number)
        finally:
            Faulty.before = NOTHING
        self.check()

    def check(self):
        """What was whole stays until a later one is whole."""
        listing = StoreListing(Store(f"faulty://{self.base}/store", {}))
        newest = max((each.number for each in listing.values()), default=-1)
        assert newest >= self.newest
        self.newest = newest

    def end(self):
        """All is copied, nothing else is left, and a new machine gets the newest, whole."""
        while True:
            for number in (*range(len(self.hosts)), *range(len(self.hosts))):
                while self.uploaders[number].step():
                    pass
                assert self.uploaders[number].behind() == ""
            iteration = self.save()
            if not all(each.is_empty() for each in self.outboxes):
                break
        for number in (*range(len(self.hosts)), *range(len(self.hosts))):
            while self.uploaders[number].step():
                pass
        path = fetch(f"file:{self.base}/store", self.base / "new")
        assert content_of(path) == self.contents[iteration]
        folders = {f.parent for f in (self.base / "store").rglob("manifest.json")}
        assert len(folders) == len(self.hosts)
        assert not [*(self.base / "store").rglob(DRAFT)]


STEPS = st.one_of(
    st.tuples(st.just("save"), st.none(), st.just(0), st.none()),
    st.tuples(st.just("save"), st.integers(0, 1), st.just(0), st.none()),
    st.tuples(
        st.just("turn"), st.integers(0, 2), st.integers(0, 30), st.sampled_from(["kill", "fail"])
    ),
    st.tuples(st.just("turn"), st.integers(0, 2), st.just(0), st.none()),
    st.tuples(st.just("start"), st.integers(2, 3), st.just(0), st.none()),
)


@pytest.mark.parametrize("examples", [pytest.param(400, marks=pytest.mark.soak), 20])
def test_whatever_happens_on_a_host_what_is_whole_stays_until_more_is(examples):
    @settings(max_examples=examples, deadline=None)
    @given(st.lists(STEPS, max_size=14))
    def many(steps):
        with TemporaryDirectory() as folder:
            job = Job(Path(folder), 2)
            for kind, number, at, fault in steps:
                if kind == "save":
                    job.save(lacking=number)
                elif kind == "turn":
                    job.turn(number % len(job.hosts), fault, at)
                else:
                    job.start(number)
            job.end()

    many()


def test_a_checkpoint_of_which_a_part_is_missing_is_not_taken(tmp_path):
    job = Job(tmp_path, 2)
    whole = job.save()
    for number in (0, 1):
        job.turn(number)
        job.turn(number)
    job.save(lacking=1)
    job.turn(0)
    path = fetch(f"file:{tmp_path}/store", tmp_path / "new")
    assert content_of(path) == job.contents[whole]
    with pytest.raises(FileExistsError, match="another run, or this one on another machine"):
        Job(tmp_path, 2).uploaders[1].begin() or job.uploaders[1].step()
