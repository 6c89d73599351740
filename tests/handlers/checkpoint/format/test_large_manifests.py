"""Manifests of checkpoints of any size, on any number of ranks: none of these is written here."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.handlers.checkpoint.format import (
    CHUNK,
    Checksums,
    Grid,
    Manifest,
    Payload,
    UnreadableError,
    folded_together,
    rank_file,
    table_as_tree,
    table_of_tree,
)
from camshaft.handlers.checkpoint.format import manifest as module
from camshaft.handlers.files import budget

TB = 10**12
LARGEST_SUM = 2**32 - 1
WHOLE = {
    "pieces.json": Checksums(10**6, [LARGEST_SUM]),
    "state.json": Checksums(10**6, [LARGEST_SUM]),
}
HEAD = Manifest(
    *(2**40, 2**40, 2**40, 2**20, "every epoch, signal"),
    metrics={f"validation/metric {n}": 0.1234567890123456 for n in range(100)},
    written={f"validation/metric {n}": 2**40 for n in range(100)},
    keep="latest(2) | best(1, 'validation/metric 1', mode='max')",
    versions={"torch": "2.13.0"},
)


def files_of_ranks(size, ranks):
    """What so many ranks write of a checkpoint of this size, with the longest checksums."""
    own, files = -(-size // ranks), dict(WHOLE)
    for rank in range(ranks):
        files[f"{rank_file(rank)}.json"] = Checksums(123_456, [LARGEST_SUM])
        sums = [LARGEST_SUM] * -(-own // CHUNK)
        files[f"{rank_file(rank)}.safetensors"] = Checksums(own, sums)
    return dict(sorted(files.items()))


@pytest.mark.parametrize(
    ("size", "ranks", "chunk"),
    [
        (4.86 * TB, 256, 256),  # 405B parameters with AdamW, in float32
        pytest.param(4.86 * TB, 16_384, 512, marks=pytest.mark.slow),
        pytest.param(
            16 * TB, 256, 512, marks=pytest.mark.slow
        ),  # 1T parameters with AdamW and an average
        pytest.param(16 * TB, 1024, 512, marks=pytest.mark.slow),
        pytest.param(16 * TB, 16_384, 1024, marks=pytest.mark.slow),
        pytest.param(100 * TB, 16_384, 8192, marks=pytest.mark.slow),
        (0.5 * TB, 64, 16),
    ],
)
def test_the_manifest_of_a_very_large_checkpoint_has_less_than_1_mib(size, ranks, chunk):
    files = folded_together(files_of_ranks(int(size), ranks))
    manifest = replace(HEAD, files=files, world_size=ranks)
    text = manifest.to_json()
    assert len(text) < 2**20
    assert Manifest.of_json(text) == manifest
    assert files[f"{rank_file(ranks - 1)}.safetensors"].chunk == chunk * 2**20
    own = {name: Payload(each.size, list) for name, each in files.items() if "rank-00000" in name}
    HEAD.refuse_large(own | {name: Payload(each.size, list) for name, each in WHOLE.items()}, ranks)


SIZES = st.integers(0, 2**44) | st.integers(0, 3 * CHUNK)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.dictionaries(st.integers(0, 5000), SIZES, max_size=40), st.integers(0, 1500))
def test_files_of_any_size_have_a_bounded_number_of_checksums_and_a_manifest_that_was_promised(
    sizes, small
):
    files = {f"{rank_file(n)}.json": Checksums(9, [LARGEST_SUM]) for n in range(small)}
    for number, size in sizes.items():
        sums = range(-(-size // CHUNK)) if size < 2**38 else [LARGEST_SUM] * -(-size // CHUNK)
        files[f"file{number}.safetensors"] = Checksums(size, [*sums])
    folded = folded_together(files)
    assert sum(len(each.crc32) for each in folded.values()) <= max(2**15, len(files) + 2**13)
    for name, each in folded.items():
        assert each.size == files[name].size
        assert len(each.crc32) == -(-each.size // each.chunk)
    if sum(map(len, (each.crc32 for each in files.values()))) <= 2**15:
        assert folded == files
    manifest = replace(HEAD, files=folded, world_size=small)
    text = manifest.to_json()
    assert Manifest.of_json(text) == manifest
    own = [name for name in files if "rank" not in name]
    promised = {name: Payload(files[name].size, list) for name in own}
    limit = pytest.MonkeyPatch()
    with limit.context() as patched:
        patched.setattr(budget, "LARGEST_MANIFEST", len(text) - 1)
        with pytest.raises(UnreadableError):  # what is not refused fits
            HEAD.refuse_large(promised, small)


@given(st.lists(st.integers(0, LARGEST_SUM), min_size=1, max_size=70), st.data())
def test_a_changed_checksum_changes_what_they_are_folded_to(sums, data):
    size, chunk = len(sums) * CHUNK, CHUNK * 2 ** data.draw(st.integers(0, 8))
    before = Checksums(size, sums).folded(chunk)
    at = data.draw(st.integers(0, len(sums) - 1))
    other = sums[at] ^ data.draw(st.integers(1, LARGEST_SUM))
    after = Checksums(size, [*sums[:at], other, *sums[at + 1 :]]).folded(chunk)
    pairs = enumerate(zip(before.crc32, after.crc32, strict=True))
    assert [n for n, (a, b) in pairs if a != b] == [at // (chunk // CHUNK)]


@given(st.lists(st.integers(0, LARGEST_SUM), max_size=70), st.data())
def test_folding_a_part_gives_that_part_of_the_folded_whole_and_folding_twice_is_folding_further(
    sums, data
):
    size = max(0, len(sums) * CHUNK - data.draw(st.integers(0, CHUNK - 1)))
    times = 2 ** data.draw(st.integers(0, 8))
    whole = Checksums(size, sums).folded(CHUNK * times)
    first = data.draw(st.integers(0, len(whole.crc32)))
    last = data.draw(st.integers(first, len(whole.crc32)))
    part = sums[first * times : last * times]
    assert Checksums(len(part) * CHUNK, part).folded(CHUNK * times).crc32 == whole.crc32[first:last]
    assert Checksums(size, sums).folded(CHUNK * 2).folded(CHUNK * times * 2) == whole.folded(
        CHUNK * times * 2
    )


def test_a_small_manifest_is_written_as_before_to_the_last_byte():
    files = {"model.safetensors": Checksums(2**24 + 1, [1, 2]), "state.json": Checksums(4, [3])}
    assert folded_together(files) == files
    text = Manifest(1, 2, files=files).to_json()
    assert text.startswith('{\n "number": 1,\n "iteration": 2,\n "step": 0,')
    assert ' "files": {\n  "model.safetensors": {\n   "size": 16777217,\n   "crc32": [' in text
    body = json.loads(text)
    assert [*body][-3:] == ["files", "format", "sha256"]
    assert json.dumps(body, indent=1) == text


def test_a_manifest_of_many_files_without_columns_is_still_read():
    files = files_of_ranks(TB // 1000, 600)
    body = asdict(replace(HEAD, files=files, world_size=600))
    old = json.dumps(body | {"sha256": module._digest(body)})
    assert Manifest.of_json(old) == replace(HEAD, files=files, world_size=600)


@pytest.mark.parametrize("missing", ["rank-00000.json", "rank-00599.safetensors"])
def test_ranks_that_write_no_file_of_a_kind_leave_a_gap(missing):
    files = files_of_ranks(TB // 1000, 600)
    del files[missing]
    files["rank-00700.json"] = files["rank-99.json"] = Checksums(0, [])  # of no rank of this run
    manifest = replace(HEAD, files=files, world_size=600)
    assert Manifest.of_json(manifest.to_json()) == manifest
    assert Manifest.of_json(manifest.to_json()).to_json() == manifest.to_json()


def forged(**columns):
    body = asdict(HEAD) | {"files": {f"rank-*{kind}": each for kind, each in columns.items()}}
    return json.dumps(body | {"sha256": module._digest(body)})


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({".json": [[3, 1], 5]}, "it is no manifest"),
        ({".json": ["ab"]}, "it is no manifest"),
        ({".json": [{"size": 1, "crc32": []}]}, "it is no manifest"),
        ({".json": 3}, "it is no manifest"),
        ({"/../x": [[3, 1]]}, "do not lie beside it"),
        ({".json": [[2**44 + 1, 1]]}, "files of more than 17592186044416 bytes"),
        ({".json": [[-1]]}, "it is no manifest"),
    ],
)
def test_columns_that_no_run_writes_are_refused(column, said):
    with pytest.raises(ValueError, match=said):
        Manifest.of_json(forged(**column))


def test_what_no_reader_takes_is_refused_with_what_to_do():
    with pytest.raises(UnreadableError, match="the files of 60,000 ranks.* Let fewer ranks train"):
        Manifest().refuse_large({}, 60_000)
    many = replace(HEAD, metrics={f"{'long name ' * 9}{n}": 0.5 for n in range(40_000)})
    with pytest.raises(UnreadableError, match="put fewer numbers into state.metrics"):
        many.refuse_large({}, 1)
    large = Payload(2**44 + 1, list)
    with pytest.raises(UnreadableError, match="model.safetensors would have .* more ranks"):
        HEAD.refuse_large({"state.json": Payload(3, list), "model.safetensors": large}, 1)


@pytest.mark.slow
def test_the_table_of_1t_parameters_with_two_moments_and_an_average_on_16384_ranks_is_read():
    ranks, rows = 16_384, 32_768
    grid = Grid("torch.float32", (tuple(range(0, rows + 1, 2)), (0, rows)), tuple(range(ranks)))
    table = {"model": {f"layers.{n}.weight": grid for n in range(6000)}}
    text = json.dumps(table_as_tree(table))
    assert len(text) < 2**20
    assert table_of_tree(json.loads(text), ranks) == table
