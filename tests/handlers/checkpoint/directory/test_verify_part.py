"""Parts of a checkpoint, each of which one rank verifies: all bytes are in one part."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from camshaft.handlers.checkpoint import BrokenCheckpoint
from camshaft.handlers.checkpoint.directory import Saved, check_pieces, verify_files, verify_portion
from camshaft.handlers.checkpoint.format import CHUNK, Checksums, Grid, Manifest, table_as_tree
from camshaft.handlers.files import text_of

SIZES = {"a.bin": 5, "b.bin": 0, "c.bin": 3 * CHUNK + 7, "d.bin": 2 * CHUNK, "state.json": 2}


@pytest.fixture
def saved(tmp_path):
    """Files of several chunks with holes, so that reading them takes no time."""
    for name, size in SIZES.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    (tmp_path / "state.json").write_text(json.dumps({}))
    files = {name: Checksums.of(tmp_path / name) for name in SIZES}
    return Saved(tmp_path, replace(Manifest(), files=files))


def findings(saved, parts):
    found = []
    for part in range(parts):
        try:
            verify_portion(saved, part, parts)
            check_pieces(saved, part, parts)
        except BrokenCheckpoint as error:
            found.append(error.reason)
    return found


@pytest.mark.quick(parts=2)
@pytest.mark.parametrize("parts", [1, 3, 2, 7, 100])
def test_each_byte_is_in_one_part_which_says_what_one_process_says(saved, parts):
    verify_files(saved)
    assert findings(saved, parts) == []
    places = [("a.bin", 4), ("d.bin", 0), ("d.bin", 2 * CHUNK - 1)]
    places += [("c.bin", at) for at in (0, CHUNK - 1, CHUNK, 2 * CHUNK + 9, 3 * CHUNK + 6)]
    for name, at in places:
        with (saved.path / name).open("r+b") as file:
            file.seek(at)
            file.write(b"\1")
        with pytest.raises(BrokenCheckpoint) as alone:
            verify_files(saved)
        assert findings(saved, parts) == [alone.value.reason], (name, at)
        with (saved.path / name).open("r+b") as file:
            file.seek(at)
            file.write(b"\0")


@pytest.mark.parametrize("parts", [1, 3])
def test_a_missing_a_short_and_a_longer_file_are_found_in_parts(saved, parts):
    for name in ("b.bin", "c.bin"):
        for size in (SIZES[name] + 1, SIZES[name] + CHUNK):
            with (saved.path / name).open("r+b") as file:
                file.truncate(size)
            assert f"{name} has {size} bytes" in findings(saved, parts)[0]
        (saved.path / name).unlink()
        assert name in findings(saved, parts)[0]
        with (saved.path / name).open("wb") as file:
            file.truncate(SIZES[name])
    assert findings(saved, parts) == []


@pytest.mark.parametrize("shape", [(2, 2), (4,), (1, 4)])
def test_a_piece_that_is_missing_or_has_another_form_is_found_though_all_bytes_are_right(
    tmp_path, shape
):
    """As a save would leave it that writes other pieces than the table says."""
    table = {"model": {"w": Grid("torch.float32", ((0, 2, 4), (0, 2)), (0, 1))}}
    (tmp_path / "state.json").write_text(json.dumps({}))
    (tmp_path / "pieces.json").write_text(text_of(table_as_tree(table)))
    save_file({"model/w[0]": torch.zeros(2, 2)}, tmp_path / "rank-00000.safetensors")
    save_file({"model/w[1]": torch.zeros(shape)}, tmp_path / "rank-00001.safetensors")
    files = {each.name: Checksums.of(each) for each in tmp_path.iterdir()}
    saved = Saved(tmp_path, replace(Manifest(), files=files, world_size=2))
    if shape == (2, 2):
        verify_files(saved)
        assert findings(saved, 2) == []
        return
    with pytest.raises(BrokenCheckpoint, match="rank-00001.* does not hold the pieces"):
        verify_files(saved)
    assert "does not hold the pieces" in findings(saved, 2)[0]
