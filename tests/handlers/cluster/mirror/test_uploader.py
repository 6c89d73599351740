"""Copying: a store shows whole checkpoints only, whatever it does, and in the end has all."""

import os
import shutil
import sys
from itertools import count
from threading import Event, Thread

import pytest

from camshaft.handlers import best, latest
from camshaft.handlers.checkpoint import Directory, checkpoints
from camshaft.handlers.checkpoint.directory.files import sweep_run
from camshaft.handlers.cluster.mirror.listing import DRAFT, StoreListing, store_name_of

from .conftest import begun, check_whole, content_of, copy_all, save
from .faulty import NOTHING, Faulty, Killed, killed, kills


def iterations(store):
    return [manifest.iteration for _, manifest in StoreListing(store).in_order()]


def test_a_copy_has_the_same_files_under_a_name_that_no_other_checkpoint_gets(store, run, tmp_path):
    saved = save(run, 3)
    copy_all(store, run)
    (copied,) = checkpoints(tmp_path / "store")
    assert copied.path.name.startswith("iteration-0000000003.")
    assert content_of(copied.path) == content_of(saved.path)
    assert checkpoints(tmp_path / "store").latest() == copied  # a directory like any other


def test_the_manifest_is_put_after_all_files_and_removed_before_them(store, run):
    done = []
    Faulty.before = lambda operation, path: done.append((operation, path.split("/")[-1]))
    save(run, 1, keep=latest(1))
    copy_all(store, run)
    shown = done.index(("moved", ".tmp-manifest.json"))
    files = ["state.json", "model.safetensors", "train.safetensors"]
    assert all(done.index(("write", name)) < shown for name in files)
    done.clear()
    save(run, 2, keep=latest(1))
    copy_all(store, run)
    hidden = done.index(("remove", "manifest.json"))
    assert all(done.index(("remove", name)) > hidden for name in files)


def test_what_the_claims_have_dropped_goes_and_what_they_want_stays_also_off_the_disk(store, run):
    keep = latest(1) | best(1, "loss")
    save(run, 1, keep, {"loss": 0.1})
    for iteration in (2, 3):
        save(run, iteration, keep, {"loss": 0.5})
        copy_all(store, run)
    assert iterations(store) == [1, 3]
    shutil.rmtree(checkpoints(run)[0].path)  # such as on a machine that has fetched the newest only
    save(run, 4, keep, {"loss": 0.4})
    copy_all(store, run)
    assert iterations(store) == [1, 4]


def test_metrics_that_are_noted_later_are_copied_and_no_file_again(store, run):
    keep, done = latest(1) | best(1, "val/loss"), []
    save(run, 1, keep)
    copy_all(store, run)
    Directory(run).add_metrics(checkpoints(run)[0], {"val/loss": 0.5}, {"val/loss": 1})
    Faulty.before = lambda operation, path: done.append((operation, path.split("/")[-1]))
    copy_all(store, run)
    written = {name for operation, name in done if operation == "write"}
    assert written == {".tmp-WRITER", ".tmp-manifest.json", ".tmp-manifest.draft"}
    for iteration in (2, 3):
        save(run, iteration, keep)
        copy_all(store, run)
    assert iterations(store) == [1, 3]
    assert StoreListing(store).in_order()[0][1].metrics == {"val/loss": 0.5}


@pytest.mark.slow
def test_a_report_may_be_asked_for_while_another_thread_notes_copies(store, run, request):
    manifest = save(run, 1).manifest
    uploader = copy_all(store, run)
    save(run, 2)
    request.addfinalizer(lambda: sys.setswitchinterval(0.005))
    sys.setswitchinterval(1e-6)

    done, parts = Event(), uploader._listing.parts

    def note():
        for number in count():
            act = (
                parts.pop if number // 9_999 % 2 else parts.__setitem__
            )  # more and more, then fewer
            act(f"other-{number % 9_999}", manifest)
            if done.is_set():
                break

    other = Thread(target=note)
    other.start()
    try:
        said = {uploader.behind().partition(", ")[2] for _ in range(100)}
    finally:
        done.set()
        other.join()
    assert said == {"that of the directory of iteration 2 (1 to copy)"}


def test_a_run_that_saves_more_often_than_it_is_copied_leaves_no_heap_of_copies(store, run):
    uploader = begun(store, run)
    for iteration in (1, 2, 3, 4):
        save(run, iteration, keep=latest(1))
        assert uploader.step()  # there is always one more
    assert iterations(store) == [4]


def test_what_camshaft_did_not_write_is_never_removed(store, run, tmp_path):
    save(run, 1, keep=latest(1))
    copy_all(store, run)
    (copied,) = (tmp_path / "store").glob("iteration-*")
    mine = [copied / "notes.txt", tmp_path / "store" / "iteration-0000000009" / "mine.txt"]
    for path in (*mine, tmp_path / "store" / "readme"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    save(run, 2, keep=latest(1))
    copy_all(store, run)
    assert iterations(store) == [2]
    assert [path.read_text() for path in mine] == ["mine"] * 2
    assert (tmp_path / "store" / "readme").read_text() == "mine"


def test_a_save_of_the_same_iteration_does_not_touch_the_copy_of_the_earlier_one(store, run):
    save(run, 1, value=1.0)
    copy_all(store, run)
    (first,) = StoreListing(store)
    shutil.rmtree(checkpoints(run)[0].path)
    save(run, 1, value=2.0)
    for _ in kills(lambda: copy_all(store, run)):
        assert first in StoreListing(store)


def test_a_checkpoint_that_is_dropped_while_it_is_copied_is_copied_to_its_end(store, run):
    save(run, 1, keep=latest(1))

    def drop(operation, path):
        if operation == "half" and path.endswith("model.safetensors"):
            Faulty.before = NOTHING
            save(run, 2, keep=latest(1))

    Faulty.before = drop
    uploader = begun(store, run)
    assert uploader.step()
    assert iterations(store) == [1]
    assert [saved.manifest.iteration for saved in checkpoints(run)] == [2]
    while uploader.step():
        pass
    assert iterations(store) == [2]
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []


def test_one_that_is_dropped_while_the_logs_are_copied_is_copied_too(store, run):
    """A run that saves more often than logs can be sent would never be copied otherwise."""
    save(run, 1, keep=latest(1))
    (run / "rows.jsonl").write_text("row\n")
    uploader = begun(store, run)

    def drop(operation, path):
        Faulty.before = NOTHING
        save(run, 2, keep=latest(1))

    Faulty.before = drop
    assert uploader.step()
    assert iterations(store) == [1]


@pytest.mark.parametrize("when", ["write", "written", "half"])
def test_one_whose_links_are_swept_while_it_is_copied_is_copied_by_the_next_step(store, run, when):
    """A run that finds its lock removed locks its directory anew, and sweeps it."""
    saved = save(run, 1)
    uploader = begun(store, run)

    def sweep(operation, path):
        if operation == when and "iteration-" in path:
            Faulty.before = NOTHING
            sweep_run(run)

    Faulty.before = sweep
    assert uploader.step()
    while uploader.step():
        pass
    assert iterations(store) == [1]
    assert uploader.behind() == ""
    check_whole(run.parent / "store", {saved.manifest.to_json(): content_of(saved.path)})


def test_one_without_a_file_on_the_disk_is_not_copied_and_told_once(store, run, caplog):
    (save(run, 1).path / "model.safetensors").unlink()
    uploader = copy_all(store, run)
    assert not uploader.step()
    assert iterations(store) == []
    assert len(caplog.messages) == 1
    assert "model.safetensors" in caplog.text


@pytest.fixture
def without_links(monkeypatch):
    """A disk on which a file has one name."""

    def refuse(*args, **options):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("without_links")
def test_one_that_is_gone_already_is_left_out_on_a_disk_without_second_names(store, run):
    save(run, 1)
    uploader = begun(store, run)

    def remove(operation, path):
        shutil.rmtree(run / "iteration-0000000001", ignore_errors=True)

    Faulty.before = remove
    (run / "rows.jsonl").write_text("row\n")  # copied first, so the store is asked before
    assert uploader.step()
    assert iterations(store) == []
    assert not uploader.step()
    assert uploader.behind() == ""


def test_damage_on_the_disk_is_not_copied_and_told_once(store, run, caplog):
    saved = save(run, 1)
    file = saved.path / "model.safetensors"
    file.write_bytes(bytes(file.stat().st_size))
    uploader = copy_all(store, run)
    assert not uploader.step()
    assert iterations(store) == []
    assert len(caplog.messages) == 1
    assert "model.safetensors is damaged" in caplog.text


@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "manifest.json", "rows.jsonl"])
@pytest.mark.parametrize("lie", ["shorter", "other"])
def test_a_store_that_lies_shows_nothing_until_it_tells_the_truth(store, run, name, lie):
    save(run, 1)
    (run / "rows.jsonl").write_text('{"loss": 1}\n')
    other = {"shorter": lambda content: content[:-1], "other": lambda content: bytes(len(content))}
    uploader = begun(store, run)
    Faulty.tear = lambda path, content: other[lie](content) if path.endswith(name) else content
    with pytest.raises(OSError, match=name):
        uploader.step()
    assert iterations(store) == []
    Faulty.tear = lambda path, content: content
    copy_all(store, run)
    assert iterations(store) == [1]


def test_after_a_failure_verified_files_are_not_sent_again(store, run):
    save(run, 1)
    uploader, written = begun(store, run), []

    def fail(operation, path):
        if operation == "write" and "iteration-" in path:
            written.append(path.split("/")[-1])
            if written.count("state.json") == 1 and written[-1] == "state.json":
                raise OSError("503 SlowDown")

    Faulty.before = fail
    with pytest.raises(OSError, match="SlowDown"):
        uploader.step()
    uploader.begin()  # as after each failure
    assert uploader.step()
    assert written.count("model.safetensors") == 1
    assert iterations(store) == [1]


def fail_at_state(uploader):
    """Copy, while the store refuses the last file but one."""

    def fail(operation, path):
        if operation == "write" and path.endswith("state.json"):
            raise OSError("503 SlowDown")

    Faulty.before = fail
    with pytest.raises(OSError, match="SlowDown"):
        uploader.step()
    Faulty.before = NOTHING


def test_the_half_of_a_checkpoint_that_is_dropped_after_a_failure_goes(store, run, tmp_path):
    save(run, 1, keep=latest(1))
    uploader = begun(store, run)

    fail_at_state(uploader)
    save(run, 2, keep=latest(1))
    uploader.begin()
    assert uploader.step()
    assert iterations(store) == [2]
    assert len([*(tmp_path / "store").glob("iteration-*")]) == 1


def test_a_store_that_lost_files_after_a_failure_gets_them_again(store, run, tmp_path):
    """Such as a bucket that was removed and made again."""
    save(run, 1)
    uploader = begun(store, run)

    fail_at_state(uploader)
    shutil.rmtree(tmp_path / "store")
    uploader.begin()
    assert uploader.step()
    assert iterations(store) == [1]


def test_of_two_that_copy_to_one_address_the_earlier_one_is_told_and_copies_no_more(
    store, run, tmp_path
):
    first = begun(store, run)
    other = tmp_path / "other"
    other.mkdir()
    second = begun(store, other)  # the store has no checkpoint yet, so it may be another run
    save(run, 1)
    save(other, 9)
    for again in (first.step, first.begin, first.step):  # also after it has looked once more
        with pytest.raises(FileExistsError, match="another run, or this one on another machine"):
            again()
    assert second.step()
    assert iterations(store) == [9]
    machine = begun(store, other)  # the same run: a machine that was thought to be gone goes on
    save(other, 10)
    with pytest.raises(FileExistsError, match="let one machine train it at a time"):
        second.step()
    assert machine.step()
    assert iterations(store) == [9, 10]


def test_logs_are_there_before_the_checkpoint_that_counts_on_them(store, run, tmp_path):
    done = []
    save(run, 1)
    for name in ("rows.jsonl", "val/rows.csv", "events.out.tfevents.1.host", "notes.txt"):
        path = run / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("a row\n")
    Faulty.before = lambda operation, path: done.append((operation, path.split("/")[-1]))
    uploader = copy_all(store, run)
    there = [("moved", f".tmp-{name}") for name in ("rows.jsonl", "rows.csv")]
    assert all(done.index(each) < done.index(("moved", ".tmp-manifest.json")) for each in there)
    assert not (tmp_path / "store" / "notes.txt").exists()
    done.clear()
    uploader.step()
    assert ("move", ".tmp-rows.jsonl") not in done  # it has not changed
    with (run / "rows.jsonl").open("a") as file:
        file.write("another\n")
    uploader.step()
    assert (tmp_path / "store" / "rows.jsonl").read_text() == "a row\nanother\n"


def test_a_kill_in_the_copy_of_a_log_leaves_the_earlier_copy(store, run, tmp_path):
    save(run, 1)
    (run / "rows.jsonl").write_text("one\n")
    copy_all(store, run)
    (run / "rows.jsonl").write_text("one\ntwo\n")

    def kill(operation, path):
        if operation == "half":
            raise Killed

    killed(begun(store, run).step, kill)
    assert (tmp_path / "store" / "rows.jsonl").read_text() == "one\n"
    copy_all(store, run)
    assert (tmp_path / "store" / "rows.jsonl").read_text() == "one\ntwo\n"
    assert not (tmp_path / "store" / ".tmp-rows.jsonl").exists()


def test_a_log_of_the_same_size_is_copied_too(store, run, tmp_path):
    """As of a run that begins anew after a kill before its first checkpoint was copied."""
    for text in ("1\n1\n", "1\n2\n"):
        (run / "rows.jsonl").write_text(text)
        copy_all(store, run)
        assert (tmp_path / "store" / "rows.jsonl").read_text() == text


@pytest.mark.slow
def test_a_kill_at_each_operation_of_a_copy_leaves_whole_checkpoints_and_no_litter(
    store, run, tmp_path
):
    save(run, 1, keep=latest(1))
    copy_all(store, run)
    before = content_of(next((tmp_path / "store").glob("iteration-*")))
    save(run, 2, keep=latest(1))
    for _ in kills(lambda: copy_all(store, run), least=20):
        newest = checkpoints(tmp_path / "store").latest()
        assert newest is not None
        assert newest.manifest.iteration == 2 or content_of(newest.path) == before
    assert iterations(store) == [2]
    assert not list((tmp_path / "store").glob(f"*/{DRAFT}"))
    assert len(list((tmp_path / "store").glob("iteration-*"))) == 1


def test_what_is_behind_is_told_and_then_nothing_is(store, run):
    save(run, 1)
    uploader = copy_all(store, run)
    assert uploader.behind() == ""
    save(run, 5)
    (run / "rows.jsonl").write_text("a row\n")
    assert uploader.behind() == (
        "its newest checkpoint is of iteration 1, that of the directory of iteration 5 (1 to copy);"
        " 1 logs there are older"
    )


def test_the_place_of_a_checkpoint_is_the_same_with_a_metric_that_is_no_number(run):
    saved = save(run, 1, metrics={"loss": float("nan")})
    assert store_name_of(saved.manifest) == store_name_of(checkpoints(run)[0].manifest)


@pytest.mark.usefixtures("without_links")
def test_a_disk_without_second_names_is_read_as_it_is(store, run):
    save(run, 1)
    copy_all(store, run)
    assert iterations(store) == [1]
