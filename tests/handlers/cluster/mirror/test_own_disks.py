"""Hosts that share no directory copy together; the store shows whole checkpoints."""

import shutil
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.handlers import fetch, latest
from camshaft.handlers.checkpoint import LOGS, checkpoints
from camshaft.handlers.checkpoint.directory import write_checkpoint
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.save.snapshot import Snapshot, streamed
from camshaft.handlers.cluster.mirror import hosts
from camshaft.handlers.cluster.mirror.copies import DRAFT, store_place_of
from camshaft.handlers.cluster.mirror.hosts import Follower, Host, HostUploader
from camshaft.handlers.cluster.mirror.store import Store

from .conftest import check_whole, content_of
from .faulty import NOTHING, Faulty, Killed

MANY = 200
"""Looks for others after which nobody moves any more."""


class Job:
    """A run on some hosts, one rank each; their processes that copy take turns, without a clock."""

    def __init__(self, base, size):
        self.base, self.size = base, size
        self.numbers = count(1)
        self.saves = []
        """The whole checkpoints, with their manifests."""
        self.orders = [[] for _ in range(size)]
        """What each host was ordered in this start: a folder with links, and a manifest."""
        self.contents = {}
        self.fault = None
        """Who fails, how, and at which operation from now on."""
        self.acting, self.looks = None, 0
        self.start()

    def start(self):
        """All processes begin anew, as in a new start of the run."""
        self.writer = f"start{next(self.numbers)}"
        self.uploaders = [self.process(rank) for rank in range(self.size)]
        self.orders = [[] for _ in range(self.size)]
        for left in self.base.glob("disk-*/.tmp-*"):  # the lock of the directory does so
            shutil.rmtree(left)
        if self.saves:
            self.order(*self.saves[-1])

    def process(self, rank):
        store = Store(f"faulty://{self.base}/store", {})
        host = Host([*range(self.size)], [rank], self.size, self.writer)
        directory = self.base / f"disk-{rank}"
        directory.mkdir(exist_ok=True)
        return HostUploader.of(store, directory, list(LOGS), host)

    def restart(self, rank):
        """One process has ended; the training starts another, with the last orders."""
        self.uploaders[rank] = self.process(rank)
        for each in self.orders[rank][-2:]:
            self.uploaders[rank].order(*each)

    def save(self, lacking=None, *, is_last=False):
        """A checkpoint, of which one host may lack its part, since its disk was full."""
        number = next(self.numbers)
        states = {f"rank-{rank:05d}.json": {"rank": rank} for rank in range(self.size)}
        tensors = {f"rank-{rank:05d}": {"w": torch.full((3,), 1.0 * number)} for rank in range(2)}
        content = streamed(Snapshot({"state.json": {"objects": {}}, **states}, tensors))
        manifest = Manifest(iteration=number, keep=repr(latest(2)), world_size=self.size)
        saved = write_checkpoint(self.base / "saves", content, manifest)
        self.contents[saved.manifest.to_json()] = content_of(saved.path)
        if is_last or self.uploaders[0].finished >= 0:  # all that was ordered is done
            self.saves.append((saved.path, saved.manifest))
            self.order(*self.saves[-1], lacking=lacking)

    def order(self, path, manifest, lacking=None):
        for rank, each in enumerate(self.uploaders):
            folder = self.base / f"disk-{rank}" / f".tmp-{next(self.numbers)}"
            if rank != lacking:
                shutil.copytree(path, folder)
            self.orders[rank].append((str(folder), manifest.to_json()))
            each.order(*self.orders[rank][-1])

    def turn(self, fault=None):
        """The leader acts once, and the others while it waits."""
        self.fault, self.looks = fault, 0
        Faulty.before = self.before
        hosts.time = SimpleNamespace(sleep=self.look)
        try:
            self.acting = 0
            self.uploaders[0].step()
        except Killed:
            self.restart(0)
        except OSError:
            with suppress(OSError):
                self.uploaders[0].begin()
        finally:
            self.acting = None
            self.others()
            Faulty.before = NOTHING

    def look(self, seconds):
        if self.acting == 0:
            self.looks += 1
            assert self.looks < MANY, "nobody moves any more"
            self.others()
            self.acting = 0

    def others(self):
        for rank in range(1, self.size):
            self.acting = rank
            try:
                if self.uploaders[rank].is_new():  # a process asks this first
                    self.uploaders[rank].step()
            except Killed:
                self.restart(rank)
            except OSError:
                pass  # it tries again
        self.acting = None

    def before(self, operation, path):
        who, how, left = self.fault or (None, None, 0)
        if who == self.acting:
            self.fault = (who, how, left - 1)
            if left == 0:
                self.fault = None
                raise Killed if how == "kill" else OSError("503 SlowDown")

    def check(self):
        """Each checkpoint that the store shows is whole, and as it was saved."""
        check_whole(self.base / "store", self.contents)

    def end(self):
        """The last order is carried out, nothing else is left, and a new machine gets all."""
        self.save(is_last=True)
        for _ in range(4):
            self.turn()
        assert not [*self.base.glob("disk-*/.tmp-*")]
        self.start()  # it removes what was not finished
        for _ in range(2):
            self.turn()
        newest = self.saves[-1][1]
        there = checkpoints(self.base / "store").latest()
        assert there.manifest.to_json() == newest.to_json()
        assert there.path.name == store_place_of(newest)
        for place in (self.base / "store").glob("iteration-*"):
            names = {each.name for each in place.iterdir()}
            # A kill before the first rename leaves the folder, which object stores do not have.
            assert "manifest.json" in names or names <= {f".tmp-{DRAFT}"}
            assert DRAFT not in names
        assert all(each.finished > 0 for each in self.uploaders)
        assert not [*self.base.glob("disk-*/.tmp-*")]
        path = fetch(f"file:{self.base}/store", self.base / "new")
        assert content_of(path) == self.contents[newest.to_json()]


STEPS = st.one_of(
    st.tuples(st.just("save"), st.just(0), st.just(0), st.none()),
    st.tuples(st.just("lacking"), st.integers(1, 2), st.just(0), st.none()),
    st.tuples(
        st.just("turn"),
        st.integers(0, 2),
        st.integers(0, 40),
        st.sampled_from(["kill", "fail", None]),
    ),
    st.tuples(st.sampled_from(["start", "restart"]), st.integers(0, 2), st.just(0), st.none()),
)


def live(size, steps):
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts, "time", hosts.time)
        job = Job(Path(folder), size)
        for kind, rank, number, how in steps:
            if kind == "save":
                job.save()
            elif kind == "lacking":
                job.save(lacking=rank)
            elif kind == "turn":
                job.turn((rank, how, number) if how else None)
            elif kind == "start":
                job.start()
            else:
                job.restart(rank % size)
            job.check()
        job.end()


def test_the_manifest_comes_after_the_files_of_all_hosts(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "time", hosts.time)
    job, done = Job(tmp_path, 3), []
    job.before = lambda operation, path: done.append((job.acting, operation, path))
    job.save()
    job.turn()
    wrote = {path.rpartition("/")[2]: who for who, operation, path in done if operation == "write"}
    assert [wrote[f"rank-{rank:05d}.json"] for rank in range(3)] == [0, 1, 2]
    assert wrote["state.json"] == 0
    at = {path.rpartition("/")[2]: n for n, (_, how, path) in enumerate(done) if how == "write"}
    names = {"state.json", *(f"rank-{rank:05d}.json" for rank in range(3))}
    assert at[f".tmp-{DRAFT}"] < min(at[each] for each in names)
    assert max(at[each] for each in names) < at[".tmp-manifest.json"]
    job.end()


def test_a_host_that_lacks_its_part_costs_that_copy_alone(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(hosts, "time", hosts.time)
    job = Job(tmp_path, 2)
    job.save(lacking=1)
    job.turn()
    assert not checkpoints(tmp_path / "store")
    assert "is not copied" in caplog.text
    assert job.uploaders[0].behind().endswith("the host of rank 1 lacks its part")
    job.end()
    assert job.uploaders[0].behind() == ""


def test_what_an_earlier_start_has_left_under_way_is_copied_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "time", hosts.time)
    job = Job(tmp_path, 3)
    job.save()
    job.uploaders[2].step = lambda: False  # the job ends before this host has answered
    with pytest.raises(AssertionError, match="nobody moves"):
        job.turn()
    assert job.uploaders[0].store.noted("HOSTS/rank-00001").endswith("whole")
    job.start()
    job.others()  # they look first
    job.turn()
    assert checkpoints(tmp_path / "store").latest().manifest == job.saves[-1][1]
    job.end()


def test_another_start_elsewhere_ends_the_copies_of_this_one(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "time", hosts.time)
    job = Job(tmp_path, 2)
    job.save()
    job.turn()
    old = job.uploaders[1]
    job.start()
    job.turn()
    job.save()
    Faulty.before = NOTHING
    assert isinstance(old, Follower)
    old.order(str(tmp_path / "gone"), job.saves[-1][1].to_json())
    assert old.step()  # what the new start copies is not for this one
    old_text = f"{store_place_of(job.saves[-1][1])} {old._host.writer}-late"
    old.store.note(hosts.COPYING, old_text)
    with pytest.raises(FileExistsError, match="another run, or this one on another machine"):
        old.step()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(2, 3), st.lists(STEPS, max_size=12))
def test_whatever_happens_on_a_host_the_store_shows_whole_checkpoints(size, steps):
    live(size, steps)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_histories_of_hosts():
    counts = Counter()

    @settings(max_examples=3000, deadline=None)
    @given(st.integers(1, 3), st.lists(STEPS, max_size=25))
    def many(size, steps):
        live(size, steps)
        counts.update(["histories", *(kind for kind, *_ in steps)])

    many()
    print(dict(counts))
