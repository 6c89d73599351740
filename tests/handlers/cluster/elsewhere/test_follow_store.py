"""A run that is followed on a machine that sees only its store."""

import shutil
import tempfile
from pathlib import Path

import pytest

from camshaft.handlers import checkpoints, fetch, follow
from camshaft.handlers.cluster.mirror.fetching import StoreError
from camshaft.handlers.cluster.mirror.store import Store
from camshaft.handlers.cluster.mirror.uploader import Uploader
from camshaft.handlers.cluster.results import Results
from camshaft.handlers.files import budget

from ..mirror.faulty import NOTHING, Faulty

pytest.importorskip("fsspec", reason='needs pip install "camshaft[mirror]"')

ASKED = "evaluate val"


def iterations(found):
    return [saved.manifest.iteration for saved in found]


@pytest.fixture
def url(tmp_path, monkeypatch):
    """The address of a store on this disk that fails when it is told to, without waits."""
    monkeypatch.setattr("camshaft.handlers.cluster.mirror.fetching.WAITS", ())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield f"faulty://{tmp_path}/store"
    Faulty.before = NOTHING


@pytest.fixture
def copy(tmp_path, url):
    """Copies what the run's directory has, and brings results from the store, as `Mirror` does."""
    uploader = Uploader(Store(url, {"auto_mkdir": True}), tmp_path / "run", [])

    def step():
        uploader.bring_results()
        while uploader.step():
            pass

    return step


def followed(url, **options):
    return follow(url, idle=0, options={"auto_mkdir": True}, **options)


def test_results_go_from_one_machine_to_the_other_through_the_store(tmp_path, save, url, copy):
    for iteration in range(1, 4):
        save(iteration, reason=ASKED if iteration % 2 else "often")
    results = Results(tmp_path / "run", "val")
    results.begin(is_new=True)
    copy()
    assert iterations(followed(url, which="every", name="test")) == [1, 2, 3]
    assert iterations(followed(url, which="newest")) == [3]
    for saved in followed(url):
        assert saved.problem() is None
        assert not saved.path.is_relative_to(tmp_path / "store")
        assert saved.write({"loss": 0.5})
        assert not saved.write({"loss": 0.25})
    assert not saved.path.exists()
    assert iterations(followed(url)) == []
    copy()
    for saved in checkpoints(tmp_path / "run"):
        said = results.read(results.place(saved))
        assert (said is None) == (saved.manifest.iteration == 2)
        assert said is None or said["metrics"] == {"loss": 0.5}


def test_what_the_run_has_decided_stays(tmp_path, save, url, copy):
    save(1, reason=ASKED)
    results = Results(tmp_path / "run", "val")
    results.begin(is_new=True)
    copy()
    (saved,) = checkpoints(tmp_path / "run")
    results.write(place := results.place(saved), checkpoint=saved.path.name, skipped="too late")
    for each in followed(url):
        each.write({"loss": 0.5})
    save(2)
    copy()
    assert results.read(place)["skipped"] == "too late"
    stored = tmp_path / "store" / place.relative_to(tmp_path / "run")
    assert stored.read_bytes() == place.read_bytes()  # for a machine that goes on from the store


def test_what_cannot_be_a_result_ends_no_copying(tmp_path, save, url, copy, caplog):
    save(1, reason=ASKED)
    results = Results(tmp_path / "run", "val")
    results.begin(is_new=True)
    copy()
    (saved,) = checkpoints(tmp_path / "run")
    place = results.place(saved)
    folder = tmp_path / "store/evaluations/val"
    folder.mkdir(parents=True)
    with (folder / place.name).open("wb") as file:
        file.truncate(budget.LARGEST_TEXT + 1)
    save(2)
    copy(), copy()
    assert not place.exists()
    assert caplog.text.count(f"{place.name} is no result") == 1
    assert len([*(tmp_path / "store").glob("*/manifest.json")]) == 2


def test_it_ends_when_the_run_has_completed_and_all_is_in_the_store(tmp_path, save, url, copy):
    save(1, reason=ASKED)
    results = Results(tmp_path / "run", "val")
    results.begin(is_new=True)
    results.complete(1)
    uploader = Uploader(Store(url, {"auto_mkdir": True}), tmp_path / "run", [])
    assert uploader.step()
    assert not (tmp_path / "store/evaluations/val/COMPLETED").exists()  # more may follow
    copy()
    assert iterations(follow(url, options={"auto_mkdir": True})) == [1]
    results.begin(is_new=False)
    Uploader(Store(url, {"auto_mkdir": True}), tmp_path / "run", []).step()
    assert not (tmp_path / "store/evaluations/val/COMPLETED").exists()


def test_a_damaged_copy_is_skipped_with_a_line(tmp_path, save, url, copy, caplog):
    save(1, reason=ASKED), save(2, reason=ASKED)
    copy()
    (first, second) = sorted((tmp_path / "store").glob("iteration-*"))
    content = bytearray((first / "train.safetensors").read_bytes())
    content[-1] ^= 1
    (first / "train.safetensors").write_bytes(content)
    assert iterations(followed(url)) == [2]
    assert "train.safetensors is damaged" in caplog.text
    shutil.rmtree(second)
    assert iterations(followed(url)) == []


def test_a_damaged_copy_is_given_when_it_is_mended(tmp_path, save, url, copy, monkeypatch):
    monkeypatch.setattr("camshaft.handlers.cluster.mirror.followed.AGAIN", 0)
    save(1, reason=ASKED), save(2, reason=ASKED)
    copy()
    first, _ = sorted((tmp_path / "store").glob("iteration-*"))
    content = (first / "train.safetensors").read_bytes()
    (first / "train.safetensors").write_bytes(bytes(len(content)))
    following = follow(url, options={"auto_mkdir": True}, idle=60)
    assert next(following).manifest.iteration == 2
    (first / "train.safetensors").write_bytes(content)
    assert next(following).manifest.iteration == 1
    following.close()


def test_what_was_evaluated_is_given_again_if_its_result_is_lost(tmp_path, save, url, copy):
    save(1, reason=ASKED)
    for place in (tmp_path / "run", url):
        copy()
        following = follow(place, options={"auto_mkdir": True} if place is url else None, idle=60)
        next(following).write({"loss": 1.0})
        root = tmp_path / "store" if place is url else place
        for each in (root / "evaluations/val").glob("*.json"):
            each.unlink()
        assert next(following).manifest.iteration == 1  # without a result, it is not given again
        following.close()


def test_a_store_that_fails_is_asked_again(save, url, copy, caplog, monkeypatch):
    save(1, reason=ASKED)
    copy()
    failures = iter(range(3))
    following = follow(url, options={"auto_mkdir": True}, idle=60)
    first = next(following)

    def fail(name, *_):
        if next(failures, None) is not None:
            raise OSError("no route to the store")

    assert first.write({"loss": 1.0})
    save(2, reason=ASKED)
    copy()
    monkeypatch.setattr(Faulty, "before", staticmethod(fail))
    assert next(following).manifest.iteration == 2
    assert caplog.text.count("follow asks again later") == 1
    following.close()


def test_a_store_that_cannot_be_read_at_the_start_is_an_error(url, monkeypatch):
    def fail(name, *_):
        raise OSError("no route to the store")

    monkeypatch.setattr(Faulty, "before", staticmethod(fail))
    with pytest.raises(StoreError, match="no route"):
        next(followed(url))


def test_files_of_a_script_that_was_killed_are_removed(tmp_path, save, url, copy):
    save(1, reason=ASKED)
    copy()
    following = followed(url)
    (used,) = {next(following).path.parents[1]}
    shutil.copytree(used, left := Path(f"{used}-left"))
    again = followed(url)
    next(again)
    assert not left.exists()
    assert used.exists()  # its script goes on
    again.close(), following.close()
    assert not used.exists()


def test_an_empty_disk_gets_the_checkpoints_that_are_to_be_evaluated(tmp_path, save, url, copy):
    for iteration in range(1, 6):
        save(iteration, reason="often" if iteration == 3 else f"often, {ASKED}", keep="latest(9)")
    copy()
    following = followed(url)
    next(following).write({"loss": 1.0})
    following.close()
    fetch(url, tmp_path / "here", options={"auto_mkdir": True})
    assert iterations(checkpoints(tmp_path / "here")) == [2, 4, 5]
    assert len([*(tmp_path / "here/evaluations/val").iterdir()]) == 1


def test_what_is_to_be_evaluated_is_copied_first(tmp_path, save, url):
    for iteration in range(1, 5):
        save(iteration, reason=ASKED if iteration in (2, 3) else "often")
    uploader, seen = Uploader(Store(url, {"auto_mkdir": True}), tmp_path / "run", []), []
    while uploader.step():
        there = {each.parent for each in (tmp_path / "store").glob("*/manifest.json")} - {*seen}
        seen += there
    assert [int(each.name[10:20]) for each in seen] == [2, 3, 4, 1]


def test_options_are_for_stores(tmp_path):
    with pytest.raises(TypeError, match="options are for a store"):
        follow(tmp_path, options={"anon": True})
    with pytest.raises(ValueError, match="fsspec knows no addresses"):
        follow("s4://bucket/run")
    with pytest.raises(ValueError, match="is no address; write one such as s3://bucket/run"):
        follow("s3:/bucket/run")
