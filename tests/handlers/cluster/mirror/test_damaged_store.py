"""A store that is damaged: another copy is taken, and without a good one no run begins anew."""

import os
import shutil
import socket
from contextlib import suppress

import pytest

from camshaft import Events
from camshaft.handlers import JSONLines, fetch, latest
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.cluster.mirror.fetching import StoreError
from camshaft.handlers.cluster.mirror.listing import StoreListing
from camshaft.handlers.cluster.mirror.store import Store

from .conftest import content_of, copy_all, engine_of, save
from .faulty import Faulty, Killed, killed, kills


@pytest.fixture
def manifests(store, run, tmp_path):
    """The manifests of two copies in a store."""
    for iteration in (1, 2):
        save(run, iteration, value=float(iteration))
    copy_all(store, run)
    return sorted((tmp_path / "store").glob("iteration-*/manifest.json"))


def flipped(at, bit):
    def damage(path):
        content = bytearray(path.read_bytes())
        content[at % len(content)] ^= 1 << bit
        path.write_bytes(content)

    return damage


DAMAGES = {
    **{f"bit {bit} of byte {at}": flipped(at, bit) for at, bit in [(0, 0), (40, 5), (-70, 3)]},
    "without its end": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "of another format": lambda path: path.write_text(
        path.read_text().replace('"format": 3', '"format": 4')
    ),
    "a list": lambda path: path.write_text("[]"),
    "too large": lambda path: path.write_bytes(b" " * (4 * 2**20 + 1)),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_copy_without_a_good_manifest_is_broken_and_without_a_good_copy_no_run_begins(
    store, manifests, fresh, caplog, damage
):
    damage(manifests[1])
    assert fetch(store.url, fresh).name == "iteration-0000000001"
    (told,) = caplog.messages
    assert told.startswith("passed over, a broken checkpoint: ")
    assert f"{manifests[1].parent.name}: manifest.json " in told
    shutil.rmtree(fresh)
    damage(manifests[0])
    with pytest.raises(ValueError, match="is good, and a run does not silently start anew") as all_:
        fetch(store.url, fresh)
    assert all(f"{path.parent.name}: manifest.json " in str(all_.value) for path in manifests)
    assert not checkpoints(fresh)


@pytest.mark.slow
def test_each_bit_of_a_manifest_counts(store, run, fresh, tmp_path):
    save(run, 1)
    copy_all(store, run)
    (path,) = (tmp_path / "store").glob("iteration-*/manifest.json")
    whole = path.read_bytes()
    for at in range(len(whole)):
        flipped(at, at % 8)(path)
        copies = StoreListing(store)
        assert copies or list(copies.broken) == [path.parent.name]
        path.write_bytes(whole[:at])
        assert list(StoreListing(store).broken) == [path.parent.name]
        path.write_bytes(whole)
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            with suppress(ValueError):
                assert Manifest.of_json(bytes(changed)) == Manifest.of_json(whole)


def test_a_training_neither_begins_anew_over_a_damaged_store_nor_replaces_its_rows(tmp_path, data):
    def train(directory, epochs):
        rows = JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED)
        engine = engine_of(directory, (tmp_path / "store").as_uri(), rows, keep=latest(1))
        return engine.run(data, max_epochs=epochs)

    train(tmp_path / "a", 2)
    (manifest,) = (tmp_path / "store").glob("iteration-*/manifest.json")
    rows, whole = (tmp_path / "store" / "rows.jsonl").read_bytes(), manifest.read_bytes()
    flipped(len(whole) // 2, 1)(manifest)
    with pytest.raises(ValueError, match="is good, and a run does not silently"):
        train(tmp_path / "b", 2)
    assert (tmp_path / "store" / "rows.jsonl").read_bytes() == rows
    assert train(tmp_path / "a", 3).iteration == 9  # the machine that has it copies it again
    assert len(StoreListing(Store((tmp_path / "store").as_uri(), {}))) == 1


def test_an_unfinished_copy_is_passed_over_and_the_only_one_lets_a_run_begin(
    store, run, fresh, caplog
):
    """Nothing was ever finished there, as on a disk with the half of a first save."""
    save(run, 1, keep=latest(1), value=1.0)
    places = []

    def kill(operation, path):
        if operation == "half" and path.endswith("state.json"):
            places.append(path.split("/")[-2])
            raise Killed

    killed(lambda: copy_all(store, run), kill)
    assert fetch(store.url, fresh) is None
    assert (
        f"the machine that copied it ended before all of it was there: {store.url}/{places[0]}"
        in (caplog.text)
    )
    copy_all(store, run)
    save(run, 2, keep=latest(1), value=2.0)
    killed(lambda: copy_all(store, run), kill)
    caplog.clear()
    assert fetch(store.url, fresh).name == "iteration-0000000001"
    assert f"{store.url}/{places[1]}" in caplog.text
    copy_all(store, fresh)
    assert len(StoreListing(store)) == 1
    assert not StoreListing(store).unfinished
    caplog.clear()
    shutil.rmtree(fresh)
    fetch(store.url, fresh)
    assert not caplog.text


@pytest.mark.slow
def test_a_kill_at_each_operation_is_never_taken_for_damage(store, run, fresh):
    """Neither where nothing was copied before, nor where a copy is replaced and removed."""
    for iteration in (1, 2):
        save(run, iteration, keep=latest(1), value=float(iteration))
        for _ in kills(lambda: copy_all(store, run), least=20):
            assert not StoreListing(store).broken
            fetch(store.url, fresh)
            shutil.rmtree(fresh, ignore_errors=True)
    assert [each.name.count(".") for each in (fresh.parents[1] / "store").rglob(".tmp*")] == []


def test_a_damaged_copy_is_mended_by_the_machine_that_has_the_checkpoint(
    store, run, manifests, fresh
):
    flipped(100, 0)(manifests[1])
    copy_all(store, run)
    assert fetch(store.url, fresh).name == "iteration-0000000002"
    assert content_of(manifests[1].parent) == content_of(run / "iteration-0000000002")


@pytest.mark.parametrize("name", ["RUN", "WRITER"])
@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"\xff" * 32), os.remove])
def test_other_damage_costs_no_checkpoint(store, run, manifests, fresh, tmp_path, name, damage):
    """A machine with an empty directory goes on; one with another name of the run is told."""
    damage(tmp_path / "store" / name)
    assert fetch(store.url, fresh).name == "iteration-0000000002"
    shutil.rmtree(fresh)
    assert len(StoreListing(store)) == 2


def test_files_of_somebody_else_are_no_broken_checkpoint(store, run, tmp_path, fresh):
    mine = tmp_path / "store" / "iteration-0000000009"
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("mine")
    assert fetch(store.url, fresh) is None
    assert not fresh.exists()


def pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def bound(path):
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as end:
        before = os.getcwd()
        os.chdir(path.parent)  # the path of a socket has to be short
        try:
            end.bind(path.name)
        finally:
            os.chdir(before)


def link(path):
    target = path.with_name(path.name + ".real")
    path.rename(target) if path.exists() else target.write_text("")
    path.symlink_to(target)


def folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


ODD = {"pipe": pipe, "socket": bound, "link": link, "directory": folder}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_in_a_store_on_a_disk_is_refused_at_once(tmp_path, run, fresh, kind):
    put, url = ODD[kind], (tmp_path / "store").as_uri()
    for iteration in (1, 2):
        save(run, iteration)
    (run / "rows.jsonl").write_text("a row\n")
    copy_all(Store(url, {}), run)
    (manifest,) = (tmp_path / "store").glob("iteration-0000000002.*/manifest.json")
    put(manifest)
    assert fetch(url, fresh).name == "iteration-0000000001"
    shutil.rmtree(fresh)
    (weights,) = (tmp_path / "store").glob("iteration-0000000001.*/model.safetensors")
    put(weights)
    with pytest.raises(ValueError, match="is good, and a run does not silently"):
        fetch(url, fresh)
    put(tmp_path / "store" / "RUN")
    with pytest.raises(StoreError, match=f"RUN is not a regular file but a {kind}"):
        fetch(url, fresh)


@pytest.mark.timeout(30)
def test_a_pipe_in_the_place_of_a_log_is_refused_at_once(tmp_path, run, fresh):
    url = (tmp_path / "store").as_uri()
    save(run, 1)
    (run / "rows.jsonl").write_text("a row\n")
    copy_all(Store(url, {}), run)
    pipe(tmp_path / "store" / "rows.jsonl")
    with pytest.raises(StoreError, match=r"rows.jsonl is not a regular file but a pipe"):
        fetch(url, fresh)
    assert not checkpoints(fresh)


def test_the_space_for_the_logs_is_counted_before_the_first_byte(store, run, fresh):
    save(run, 1)
    (run / "rows.jsonl").write_text("a row\n")
    copy_all(store, run)
    os.truncate(fresh.parents[1] / "store" / "rows.jsonl", 2**43)
    got = []
    Faulty.before = lambda operation, path: got.append(path) if operation == "get" else None
    with pytest.raises(OSError, match="bytes are needed in") as raised:
        fetch(store.url, fresh)
    assert not isinstance(raised.value, StoreError)
    assert not got
    assert not (fresh / "rows.jsonl").exists()
