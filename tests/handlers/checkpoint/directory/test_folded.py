"""Checkpoints whose checksums are folded: chunks are small here, so that small files have many."""

import os
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, latest
from camshaft.handlers.checkpoint import BrokenCheckpoint, checkpoints
from camshaft.handlers.checkpoint.directory import (
    Saved,
    files,
    verify,
    verify_files,
    verify_portion,
    write,
)
from camshaft.handlers.checkpoint.format import (
    Checksums,
    Manifest,
    Places,
    UnreadableError,
    checksums,
    folded_together,
)
from camshaft.handlers.checkpoint.format.pieces import budget
from camshaft.handlers.checkpoint.sharding import Layout
from camshaft.handlers.cluster.mirror import store as mirror_store
from camshaft.handlers.cluster.mirror.store import DamagedError, Store

CHUNK = 64
EACH = Events.ITERATION_COMPLETED
DATA = [(torch.full((2, 16), each), torch.full((2, 16), each)) for each in (0.5, -0.25, 1.0)]


def make_small(patched, most=8):
    for module in (checksums, verify, files, mirror_store):
        patched.setattr(module, "CHUNK", CHUNK)
    for module in (checksums, write):
        patched.setattr(module, "MOST_CHECKSUMS", most)
    checksums._zeros.cache_clear()


@pytest.fixture
def small(monkeypatch):
    with monkeypatch.context() as patched:
        make_small(patched)
        yield
    checksums._zeros.cache_clear()


def engine_of(directory, **options):
    torch.manual_seed(0)
    model = nn.Linear(16, 16)
    engine = supervised(model, torch.optim.Adam(model.parameters(), 0.125), nn.functional.mse_loss)
    return engine.add(Checkpoint(directory, when=EACH, **options))


def saved_with(path, contents):
    for name, content in contents.items():
        (path / name).write_bytes(content)
    found = folded_together({name: Checksums.of(path / name) for name in contents})
    return Saved(path, replace(Manifest(), files=found))


def is_found(saved, number, count, into=None):
    try:
        verify_portion(saved, number, count, into)
    except BrokenCheckpoint as error:
        return error.reason
    return None


@pytest.mark.slow
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=5), st.integers(1, 30), st.data())
def test_any_damaged_byte_is_found_by_one_of_any_number_of_ranks(
    tmp_path_factory, sizes, most, data
):
    path, patch = tmp_path_factory.mktemp("folded"), pytest.MonkeyPatch()
    with patch.context() as patched:
        make_small(patched, most)
        contents = {f"{n}.bin": os.urandom(size) for n, size in enumerate(sizes)}
        saved = saved_with(path, contents | {"state.json": b"{}"})
        kept = saved.manifest.files
        assert sum(len(each.crc32) for each in kept.values()) <= max(most, len(kept) + most // 4)
        count = data.draw(st.integers(1, 7))
        assert [is_found(saved, n, count) for n in range(count)] == [None] * count
        verify_files(saved, [*contents])
        name = data.draw(st.sampled_from([*contents]))
        if content := bytearray(contents[name]):
            buffer = memoryview(bytearray(len(content)))
            cut = data.draw(st.integers(0, len(content)))
            assert is_found(saved, 0, 1, {name: Places([buffer[:cut], buffer[cut:]])}) is None
            assert bytes(buffer) == content
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(
                st.integers(0, 7)
            )
            (path / name).write_bytes(content)
            found = [*filter(None, (is_found(saved, n, count) for n in range(count)))]
            assert found == [f"{name} is damaged: its checksum is not the one in manifest.json"]
            with pytest.raises(BrokenCheckpoint):
                verify_files(saved, [name])
    checksums._zeros.cache_clear()


def test_the_file_of_one_of_256_ranks_of_16_tb_is_verified_in_chunks_of_512_mib(
    tmp_path,
):
    """One rank's real file, with holes, and what the others would have written."""
    name, size = "rank-00255.safetensors", 16 * 10**12 // 256
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, size)
    own = Checksums.of(tmp_path / name)
    others = {f"rank-{n:05d}.safetensors": own for n in range(255)}
    folded = folded_together(others | {name: own})
    assert (folded[name].chunk, len(folded[name].crc32)) == (2**29, 117)
    (tmp_path / "state.json").touch()
    rest = {name: folded[name], "state.json": Checksums.of(tmp_path / "state.json")}
    saved = Saved(tmp_path, replace(Manifest(), files=rest))
    verify_files(saved, [name])
    for place in (0, 2**29, size // 2, size - 1):
        with (tmp_path / name).open("r+b") as file:
            file.seek(place)
            file.write(b"\1")
        assert [*filter(None, (is_found(saved, n, 16) for n in range(16)))] == [
            f"{name} is damaged: its checksum is not the one in manifest.json"
        ]
        with (tmp_path / name).open("r+b") as file:
            file.seek(place)
            file.write(b"\0")


def test_a_rank_reads_at_most_one_chunk_more_than_its_part(tmp_path, small, monkeypatch):
    saved = saved_with(
        tmp_path, {"a.bin": bytes([7]) * 5000, "b.bin": b"x" * 999, "state.json": b""}
    )
    read, preadv = [], os.preadv
    monkeypatch.setattr(os, "preadv", lambda *given: read.append(preadv(*given)) or read[-1])
    chunk = max(each.chunk for each in saved.manifest.files.values())
    assert chunk == 16 * CHUNK
    for count in (1, 2, 3, 5, 9):
        parts = []
        for number in range(count):
            read.clear()
            verify_portion(saved, number, count)
            parts.append(sum(read))
        assert sum(parts) == saved.manifest.size  # no byte is read twice
        assert max(parts) <= saved.manifest.size / count + chunk


def test_a_run_with_folded_checksums_is_resumed_to_the_same_bits_and_its_damage_is_found(
    tmp_path, small
):
    weights = []
    for directory, limits in (("one", (6,)), ("two", (2, 6))):
        for limit in limits:
            engine = engine_of(tmp_path / directory, resume=True)
            engine.run(DATA, max_iterations=limit)
        weights.append(engine.objects["model"].state_dict()["weight"])
    assert torch.equal(*weights)
    newest = checkpoints(tmp_path / "two")[-1]
    sums = newest.manifest.files["train.safetensors"]
    assert sums.chunk > CHUNK
    path = newest.path / "train.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    found = checkpoints(tmp_path / "two")
    assert found.latest() == found[0]
    assert "train.safetensors is damaged" in found.broken[newest.path.name]


def test_a_shared_file_is_not_folded_further_by_each_save(tmp_path, small, monkeypatch):
    monkeypatch.setattr(files, "SMALLEST", 1)
    model = nn.Linear(16, 16)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.0), nn.functional.mse_loss)
    engine.add(Checkpoint(tmp_path, when=EACH, keep=latest(9)))
    engine.run(DATA, max_iterations=5)
    found = checkpoints(tmp_path)
    assert len({(each.path / "model.safetensors").stat().st_ino for each in found}) == 1
    (chunk,) = {each.manifest.files["model.safetensors"].chunk for each in found}
    assert CHUNK < chunk < found[0].manifest.size
    assert found.latest() == found[-1]


def test_a_copy_in_a_store_is_compared_with_folded_checksums(tmp_path, small):
    engine_of(tmp_path / "run").run(DATA, max_iterations=1)
    (saved,) = checkpoints(tmp_path / "run")
    store = Store((tmp_path / "store").as_uri(), {})
    name, sums = "train.safetensors", saved.manifest.files["train.safetensors"]
    with (saved.path / name).open("rb") as file:
        store.put(name, file, sums.size, sums.crc32)
    assert (tmp_path / "store" / name).read_bytes() == (saved.path / name).read_bytes()
    with (saved.path / name).open("rb") as file, pytest.raises(DamagedError, match="is damaged"):
        store.put(name, file, sums.size, [*sums.crc32[:-1], sums.crc32[-1] ^ 1])


def made_directories(monkeypatch):
    made, mkdir = [], os.mkdir
    monkeypatch.setattr(
        os, "mkdir", lambda path, *rest: made.append(str(path)) or mkdir(path, *rest)
    )
    return made


@pytest.mark.slow
@pytest.mark.parametrize("background", [True, False])
def test_a_save_that_no_reader_would_take_is_refused_before_its_first_byte(
    tmp_path, monkeypatch, background
):
    made = made_directories(monkeypatch)
    engine = engine_of(tmp_path / "run", background=background)

    @engine.on(EACH(at=2))
    def measure(state):
        for n in range(40_000):
            state.metrics[f"{'a long name ' * 8}{n}"] = 0.5

    with pytest.raises(UnreadableError, match="no checkpoint can be saved: its manifest.json"):
        engine.run(DATA, max_iterations=3)
    assert [each for each in made if ".tmp-iteration-0000000002" in each] == []
    (saved,) = checkpoints(tmp_path / "run")
    assert saved.manifest.iteration == 1


def test_a_file_that_no_reader_would_take_is_refused_before_its_first_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "LARGEST_FILE", 2000)
    made = made_directories(monkeypatch)
    with pytest.raises(UnreadableError, match="would have .* more ranks"):
        engine_of(tmp_path / "run").run(DATA, max_iterations=1)
    assert not any(".tmp-iteration" in each for each in made)
    lenient = engine_of(tmp_path / "other", on_failure="warn")
    assert lenient.run(DATA, max_iterations=3).iteration == 3
    assert not checkpoints(tmp_path / "other")


@pytest.fixture
def many(request):
    dist.init_process_group("fake", rank=1, world_size=request.param, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("many", [60_000], indirect=True)
def test_more_ranks_than_a_manifest_has_room_for_are_refused_at_the_start(tmp_path, many):
    iterations = []
    engine = engine_of(tmp_path)
    engine.on(Events.ITERATION_STARTED)(lambda state: iterations.append(state.iteration))
    with pytest.raises(UnreadableError, match="60,000 ranks"):
        engine.run(DATA, max_iterations=1)
    assert iterations == []


@pytest.mark.parametrize("many", [4], indirect=True)
def test_more_pieces_than_a_table_has_room_for_are_refused_at_the_first_save(many, monkeypatch):
    mesh = init_device_mesh("cpu", (4,))
    tensors = {"model": {"w": distribute_tensor(torch.zeros(8, 2), mesh, [Shard(0)])}}
    layout = Layout()
    monkeypatch.setattr(budget, "MOST_PIECES", 3)
    for _ in range(2):  # also another time
        with pytest.raises(ValueError, match=r"more than 3 pieces of tensors; shard within hosts"):
            layout.update(tensors, lambda *_: True)
    monkeypatch.setattr(budget, "MOST_PIECES", 4)
    layout.update(tensors, lambda *_: True)
    assert len(layout.infos) == 1
