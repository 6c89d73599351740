"""Fetching: an empty directory gets the newest good checkpoint, all of it, and of one run."""

import random
import shutil
import subprocess

import pytest

from camshaft.handlers import fetch, latest
from camshaft.handlers.cluster.mirror.copying import look_for
from camshaft.handlers.cluster.mirror.fetching import StoreError
from camshaft.handlers.cluster.mirror.store import Store, check_address

from .conftest import begun, content_of, copy_all, iterations, save
from .faulty import Faulty, kills


@pytest.fixture
def url(store):
    return store.url


def damage(store, iteration, name="model.safetensors"):
    (file,) = store.glob(f"iteration-{iteration:010d}.*/{name}")
    file.write_bytes(bytes(file.stat().st_size))


def test_an_empty_directory_gets_the_newest_checkpoint_and_the_logs(store, run, url, fresh):
    save(run, 1)
    saved = save(run, 2)
    (run / "val").mkdir()
    (run / "val" / "rows.jsonl").write_text("a row\n")
    copy_all(store, run)
    path = fetch(url, fresh)
    assert path == fresh / "iteration-0000000002"
    assert content_of(path) == content_of(saved.path)
    assert iterations(fresh) == [2]
    assert (fresh / "val" / "rows.jsonl").read_text() == "a row\n"
    assert fetch(url, fresh) is None  # it has all now


def test_an_address_without_a_run_gives_nothing_and_makes_nothing(url, fresh):
    assert fetch(url, fresh) is None
    assert not fresh.exists()


def test_an_address_that_is_a_file_is_told_without_another_try(fresh, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    waits = list[float]()
    monkeypatch.setattr("camshaft.handlers.cluster.mirror.fetching.time.sleep", waits.append)
    with pytest.raises(StoreError, match="cannot be read: NotADirectoryError"):
        fetch((tmp_path / "file").as_uri(), fresh)
    assert not waits


def test_a_broken_one_is_passed_over_with_a_warning(store, run, url, fresh, tmp_path, caplog):
    for iteration in (1, 2):
        save(run, iteration)
    copy_all(store, run)
    damage(tmp_path / "store", 2)
    assert fetch(url, fresh).name == "iteration-0000000001"
    assert "model.safetensors is damaged" in caplog.text
    assert iterations(fresh) == [1]


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json"])
def test_one_without_a_file_is_passed_over(store, run, url, fresh, tmp_path, name):
    for iteration in (1, 2):
        save(run, iteration)
    copy_all(store, run)
    next((tmp_path / "store").glob(f"iteration-0000000002.*/{name}")).unlink()
    assert fetch(url, fresh).name == "iteration-0000000001"


def test_a_directory_that_is_newer_wins_and_one_that_is_older_gets_the_newer(
    store, run, url, tmp_path
):
    save(run, 1)
    copy_all(store, run)
    away = shutil.copytree(run, tmp_path / "away")
    save(run, 2)
    assert fetch(url, run) is None
    (run / "rows.jsonl").write_text("1\n2\n")
    copy_all(store, run)
    (away / "rows.jsonl").write_text("1\n")
    assert fetch(url, away).name == "iteration-0000000002"
    assert iterations(away) == [1, 2]
    assert (away / "rows.jsonl").read_text() == "1\n2\n"


def test_logs_come_with_their_checkpoint_though_others_here_are_longer(
    store, run, url, fresh, caplog
):
    save(run, 1)
    (run / "rows.jsonl").write_text("1\n")
    copy_all(store, run)
    with (run / "rows.jsonl").open("a") as file:
        file.write("2, before the machine was lost\n")
    fetch(url, fresh)
    save(fresh, 2)
    (fresh / "rows.jsonl").write_text("1\n2\n")
    copy_all(store, fresh)
    fetch(url, run)
    assert (run / "rows.jsonl").read_text() == "1\n2\n"
    assert (run / "rows.jsonl.1").read_text() == "1\n2, before the machine was lost\n"
    assert f"moved to {run}/rows.jsonl.1" in caplog.text
    with (run / "rows.jsonl").open("a") as file:
        file.write("3\n")
    save(fresh, 3)
    copy_all(store, fresh)
    fetch(url, run)
    assert (run / "rows.jsonl").read_text() == "1\n2\n3\n"  # they are those of the store, and more
    assert not (run / "rows.jsonl.2").exists()


def test_where_the_checkpoint_cannot_be_fetched_the_logs_stay(store, run, url, fresh, tmp_path):
    save(run, 1)
    (run / "rows.jsonl").write_text("1\n")
    copy_all(store, run)
    fetch(url, fresh)
    (fresh / "rows.jsonl").write_text("one\n")
    save(run, 2)
    copy_all(store, run)
    damage(tmp_path / "store", 2)
    assert fetch(url, fresh) is None
    assert (fresh / "rows.jsonl").read_text() == "one\n"


def test_logs_stay_on_hosts_whose_own_disks_are_further_than_the_store(store, run, tmp_path):
    save(run, 1)
    (run / "rows.jsonl").write_text("1\n2, before a resume\n")
    copy_all(store, run)
    save(run, 2)
    (run / "rows.jsonl").write_text("1\n2\n")
    look_for(store, {"directory": str(run), "logs": ["*.jsonl"], "resume": True})
    assert (run / "rows.jsonl").read_text() == "1\n2\n"


@pytest.fixture
def gone_on(store, run, url, fresh):
    """A machine saved to 59 after its last copy; another one went on from that copy to 400."""
    save(run, 10)
    copy_all(store, run)
    for iteration in range(11, 60):
        save(run, iteration)
    fetch(url, fresh)
    begun(store, fresh)

    def go_on():
        for iteration in (100, 200, 300, 400):
            save(fresh, iteration)
        copy_all(store, fresh)

    return go_on


def test_where_another_machine_has_gone_on_the_run_goes_on_and_its_copies_stay(
    store, run, url, tmp_path, gone_on, caplog
):
    """Its saves have smaller numbers: it counts on from the one that it has fetched."""
    gone_on()
    newest = iterations(tmp_path / "store")
    assert newest == [300, 400]
    assert fetch(url, run).name == "iteration-0000000400"
    assert iterations(run) == [400]
    assert iterations(run / "earlier.1") == [58, 59]
    assert "what was saved here instead, up to iteration 59, is in" in caplog.text
    assert fetch(url, run) is None
    save(run, 401)
    copy_all(store, run)
    assert iterations(tmp_path / "store") == [400, 401]


def test_a_machine_that_copied_nothing_costs_another_one_no_iteration(
    store, run, url, tmp_path, gone_on
):
    assert fetch(url, run) is None
    assert iterations(run) == [58, 59]
    copy_all(store, run)
    assert iterations(tmp_path / "store") == [58, 59]


def test_a_machine_that_could_not_look_at_its_start_removes_nothing_of_another_one(
    store, run, tmp_path, gone_on
):
    gone_on()
    with pytest.raises(FileExistsError, match="another machine has gone on .*-0000000400"):
        copy_all(store, run)
    assert iterations(tmp_path / "store") == [300, 400]


def test_a_run_that_was_set_back_goes_on_from_there_here_and_elsewhere(store, run, url, tmp_path):
    for iteration in (200, 500):
        save(run, iteration)
    copy_all(store, run)
    away = shutil.copytree(run, tmp_path / "away")
    for iteration in range(501, 510):
        save(away, iteration)
    save(run, 210)
    assert fetch(url, run) is None
    assert iterations(run) == [500, 210]
    copy_all(store, run)
    assert fetch(url, away).name == "iteration-0000000210"
    assert iterations(away) == [210]


def test_two_runs_are_never_mixed(store, run, url, tmp_path):
    save(run, 1)
    copy_all(store, run)
    other = tmp_path / "other"
    other.mkdir()
    save(other, 9)
    with pytest.raises(FileExistsError, match="checkpoints of another run"):
        fetch(url, other)
    with pytest.raises(FileExistsError, match="checkpoints of another run"):
        copy_all(store, other)
    assert iterations(other) == [9]
    assert iterations(tmp_path / "store") == [1]


def test_an_address_without_checkpoints_may_be_used_by_another_run(store, run, url, tmp_path):
    copy_all(store, run)  # it was killed before its first save
    other = tmp_path / "other"
    other.mkdir()
    save(other, 9)
    copy_all(store, other)
    assert iterations(tmp_path / "store") == [9]


def test_a_kill_at_each_operation_leaves_a_directory_that_is_fetched_to_again(
    store, run, url, fresh
):
    (run / "rows.jsonl").write_text("a row\n")
    saved = save(run, 1, keep=latest(1))
    copy_all(store, run)
    for _ in kills(lambda: fetch(url, fresh)):
        assert iterations(fresh) == []
    assert content_of(fresh / "iteration-0000000001") == content_of(saved.path)
    assert (fresh / "rows.jsonl").read_text() == "a row\n"


def test_names_in_a_store_lead_nowhere_else(store, run, url, fresh, tmp_path):
    save(run, 1)
    copy_all(store, run)
    outside = tmp_path / "outside.jsonl"
    hidden = tmp_path / "store" / ".ssh" / "rows.jsonl"
    hidden.parent.mkdir()
    for path in (outside, hidden):
        path.write_text("hostile")
    found = Faulty().find(str(tmp_path / "store"), detail=True)
    Faulty.listing = found | {f"{tmp_path}/store/../outside.jsonl": {"size": 7}}
    fetch(url, fresh)
    assert sorted(path.name for path in fresh.parent.rglob("*.jsonl")) == []


def test_a_folder_that_is_a_link_is_not_followed(store, run, url, fresh, tmp_path):
    (run / "val").mkdir()
    (run / "val" / "rows.jsonl").write_text("a row\n")
    save(run, 1)
    copy_all(store, run)
    (tmp_path / "elsewhere").mkdir()
    fresh.mkdir(parents=True)
    (fresh / "val").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotADirectoryError, match="val is not a directory but a link"):
        fetch(url, fresh)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_store_that_fails_is_asked_again_and_then_named(
    store, run, url, fresh, monkeypatch, caplog
):
    save(run, 1)
    copy_all(store, run)
    monkeypatch.setattr("camshaft.handlers.cluster.mirror.fetching.WAITS", (0.0, 0.0))
    failures = [("get", 2), ("info", 2)]  # the first one of each kind, and the next

    def sometimes(operation, path):
        for kind, left in list(failures):
            if operation == kind:
                failures.remove((kind, left))
                failures.extend([(kind, left - 1)] if left > 1 else [])
                raise TimeoutError("slow down")

    Faulty.before = sometimes
    assert fetch(url, fresh).name == "iteration-0000000001"
    assert not failures

    def always(operation, path):
        raise TimeoutError("slow down")

    Faulty.before = always
    with pytest.raises(StoreError, match="faulty.* cannot be read: TimeoutError: slow down"):
        fetch(url, fresh)


def test_a_listing_that_fails_is_no_empty_store(store, run, url, fresh, monkeypatch):
    save(run, 1)
    copy_all(store, run)
    monkeypatch.setattr("camshaft.handlers.cluster.mirror.fetching.WAITS", ())

    def fail(operation, path):
        if operation == "list" and "iteration-" in path:
            raise OSError("input/output error")

    Faulty.before = fail
    with pytest.raises(StoreError, match="input/output error"):
        fetch(url, fresh)


def test_a_disk_that_is_full_is_told_and_has_no_half(store, run, url, fresh):
    """The disk, not the store: so nobody asks again."""
    save(run, 1, value=1.0)
    (run / "rows.jsonl").write_text("a row\n" * 30_000)  # more than the disk below has
    copy_all(store, run)
    fresh.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "t", fresh]).returncode:
        pytest.skip("only root mounts a small disk")
    try:
        with pytest.raises(OSError, match="No space left on device") as raised:
            fetch(url, fresh)
        assert not isinstance(raised.value, StoreError)
        assert [path.name for path in fresh.iterdir() if path.name not in ("RUN", ".lock")] == []
    finally:
        subprocess.run(["umount", fresh], check=True)
    assert fetch(url, fresh).name == "iteration-0000000001"


def test_the_generator_of_python_is_left_as_it_was(store, run, url, fresh):
    save(run, 1)
    copy_all(store, run)
    Faulty.before = lambda operation, path: random.random()  # as botocore before it tries again
    before = random.getstate()
    fetch(url, fresh)
    assert random.getstate() == before


def test_secrets_are_in_no_message(tmp_path):
    options = {"key": "AKIA1234", "client_kwargs": {"aws_secret_access_key": "hush-hush"}}
    store = Store(f"faulty://{tmp_path}", {"auto_mkdir": True} | {"anon": False} | options)
    told = store.said(PermissionError("AKIA1234 with hush-hush at ftp://me:word@host/"))
    assert told == "PermissionError: *** with *** at ftp://***@host/"
    store = Store(f"faulty://{tmp_path}", {"endpoint_url": "http://host:9000"})
    assert "http://host:9000" in store.said(OSError("no answer from http://host:9000"))


def test_an_address_that_nothing_knows_is_an_error_at_once():
    with pytest.raises(ValueError, match="fsspec knows no addresses that begin with s33://"):
        check_address("s33://bucket/run")
    with pytest.raises(ModuleNotFoundError, match="gs://bucket/run: Please install gcsfs"):
        check_address("gs://bucket/run")
