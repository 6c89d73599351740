"""Random histories of a run, its machines and its store: the store's newest is always whole."""

import shutil
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.handlers import best, every, fetch, latest
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.cluster.mirror.listing import DRAFT
from camshaft.handlers.cluster.mirror.store import Store

from .conftest import check_whole, content_of, copy_all, save
from .faulty import NOTHING, Faulty, Killed

KEEPS = [latest(1), latest(2), latest(1) | best(1, "loss"), latest(1) | every(3)]
STEPS = st.one_of(
    st.tuples(st.just("save"), st.integers(0, 2), st.sampled_from([0.1, 0.5, float("nan")])),
    st.tuples(st.just("copy"), st.just(0), st.none()),
    st.tuples(
        st.sampled_from(["kill", "fail", "truncate", "change"]), st.integers(0, 40), st.none()
    ),
    st.tuples(st.just("machine"), st.just(0), st.none()),
)
COMING_BACK = st.one_of(
    STEPS.filter(lambda step: step[0] in ("save", "copy", "kill", "fail", "machine")),
    st.tuples(st.just("back"), st.integers(0, 5), st.none()),
)


class History:
    """One run, on one machine after another, beside one store."""

    def __init__(self, base, keep):
        self.base, self.keep = base, keep
        self.url = f"faulty://{base}/store"
        self.store = Store(self.url, {})
        self.numbers, self.iteration = count(), 1
        self.contents = {}
        """What was saved, by the number of the save."""
        self.move()

    def move(self, back=None):
        """Go on with another machine, which has an empty disk, or its disk of before."""
        earlier = sorted(self.base.glob("run*"))
        if back is None:
            self.run = self.base / f"run{next(self.numbers)}"
            self.run.mkdir()
        else:
            self.run = earlier[back % len(earlier)]
        try:
            fetch(self.url, self.run)
        except FileExistsError:  # the store was empty when the other machine began
            return self.move()
        newest = checkpoints(self.run).latest()
        self.iteration = 1 if newest is None else newest.manifest.iteration
        return None

    def save(self, further, loss):
        self.iteration += further
        value = float(next(self.numbers))
        saved = save(self.run, self.iteration, self.keep, {"loss": loss}, value)
        self.contents[saved.manifest.to_json()] = content_of(saved.path)
        with (self.run / "rows.jsonl").open("a") as file:
            file.write(f"{self.iteration}\n")

    def copy(self):
        copy_all(self.store, self.run)

    def copy_with(self, fault, number):
        """Copy, with a fault at an operation; what is copied meanwhile may be wrong."""
        left = iter(range(number))

        def is_time():
            return next(left, None) is None

        def before(operation, path):
            if fault in ("kill", "fail") and is_time():
                raise Killed if fault == "kill" else OSError("503 SlowDown")

        def tear(path, content):
            if fault in ("truncate", "change") and is_time():
                return content[:-1] if fault == "truncate" else bytes(len(content))
            return content

        Faulty.before, Faulty.tear = before, tear
        try:
            with suppress(Killed, OSError):
                self.copy()
        finally:
            Faulty.before, Faulty.tear = NOTHING, lambda path, content: content

    def check(self):
        """Each checkpoint that the store shows is whole, and as it was saved."""
        check_whole(self.base / "store", self.contents)

    def end(self):
        """After one more copy, the store has what the disk has; a new machine gets the newest."""
        self.copy()
        here = [saved.manifest.to_json() for saved in checkpoints(self.run)]
        there = [saved.manifest.to_json() for saved in checkpoints(self.base / "store")]
        assert set(here) <= set(there)
        assert here[-1:] == there[-1:]
        for draft in (self.base / "store").glob(f"*/{DRAFT}"):
            # A torn one marks files that nothing else names.
            with pytest.raises(ValueError, match="JSON|manifest"):
                Manifest.of_json(draft.read_bytes())
        if here:
            assert (self.base / "store" / "rows.jsonl").read_text() == (
                self.run / "rows.jsonl"
            ).read_text()
        before = self.run
        self.move()
        assert [saved.manifest.to_json() for saved in checkpoints(self.run)] == here[-1:]
        shutil.rmtree(before)


def live(keep, steps):
    with TemporaryDirectory() as folder:
        history = History(Path(folder), keep)
        for kind, number, loss in steps:
            if kind == "save":
                history.save(number, loss)
            elif kind == "copy":
                history.copy()
            elif kind == "machine":
                history.move()
            elif kind == "back":
                history.move(number)
            else:
                history.copy_with(kind, number)
            history.check()
        history.end()


@pytest.mark.slow
@settings(max_examples=60)
@given(st.sampled_from(KEEPS), st.lists(STEPS, max_size=12))
def test_whatever_happens_the_store_shows_whole_checkpoints_and_ends_with_all(keep, steps):
    live(keep, steps)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.sampled_from(KEEPS), st.lists(COMING_BACK, max_size=12))
def test_machines_that_come_back_to_their_disks_leave_the_newest_in_the_store(keep, steps):
    live(keep, steps)


def test_a_torn_draft_of_which_no_file_was_copied_does_not_stay():
    live(latest(1), [("save", 0, 0.1), ("truncate", 5, None), ("save", 0, 0.1)])


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_histories():
    counts = Counter()

    @settings(max_examples=5000)
    @given(st.sampled_from(KEEPS), st.lists(STEPS, max_size=25))
    def many(keep, steps):
        live(keep, steps)
        counts.update(["histories", *(kind for kind, *_ in steps)])

    files = psutil.Process().num_fds()
    many()
    print(dict(counts))
    assert psutil.Process().num_fds() == files
