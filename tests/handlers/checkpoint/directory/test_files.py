"""Files: there at once or not at all, and damage is seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers.checkpoint.directory import checksums_of, sweep_run
from camshaft.handlers.checkpoint.directory.files import vanish


def test_what_a_killed_process_left_is_swept_and_nothing_else(tmp_path):
    number = "0" * 32
    left = [f".tmp-iteration-0000000003-{number}", f".del-iteration-0000000003.2-{number}"]
    foreign = [".tmp-iteration-3", f".tmp-notes-{number}", ".git", "iteration-0000000003", "x.tmp"]
    for name in left + foreign:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / f".tmp-LATEST-{number}").touch()
    sweep_run(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(foreign)


def test_what_vanishes_is_gone(tmp_path):
    (tmp_path / "old/inner").mkdir(parents=True)
    vanish(tmp_path / "old")
    assert list(tmp_path.iterdir()) == []


@given(st.binary(min_size=1), st.data())
def test_no_flipped_bit_goes_unnoticed(tmp_path_factory, content, data):
    path = tmp_path_factory.mktemp("files") / "file"
    path.write_bytes(content)
    whole = checksums_of(path)
    at = data.draw(st.integers(0, len(content) - 1))
    flipped = content[at] ^ (1 << data.draw(st.integers(0, 7)))
    path.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
    assert checksums_of(path) != whole
    assert checksums_of(path).size == whole.size


def test_a_large_file_has_a_checksum_for_each_16_mib(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(bytes(2**24 + 1))
    assert checksums_of(path).size == 2**24 + 1
    assert len(checksums_of(path).crc32) == 2


def test_a_link_is_no_file(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="link is not a regular file but a link"):
        checksums_of(tmp_path / "link")
