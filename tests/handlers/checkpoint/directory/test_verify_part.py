"""Parts of a checkpoint, each of which one rank verifies: all bytes are in one part."""

import json
from dataclasses import replace

import pytest

from camshaft.handlers.checkpoint import BrokenCheckpoint
from camshaft.handlers.checkpoint.directory import (
    CHUNK,
    Saved,
    checksums_of,
    verify_files,
    verify_part,
)
from camshaft.handlers.checkpoint.format import Manifest

SIZES = {"a.bin": 5, "b.bin": 0, "c.bin": 3 * CHUNK + 7, "d.bin": 2 * CHUNK, "state.json": 2}


@pytest.fixture
def saved(tmp_path):
    """Files of several chunks with holes, so that reading them takes no time."""
    for name, size in SIZES.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    (tmp_path / "state.json").write_text(json.dumps({}))
    files = {name: checksums_of(tmp_path / name) for name in SIZES}
    return Saved(tmp_path, replace(Manifest(), files=files))


def findings(saved, parts):
    found = []
    for part in range(parts):
        try:
            verify_part(saved, part, parts)
        except BrokenCheckpoint as error:
            found.append(error.reason)
    return found


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100])
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
