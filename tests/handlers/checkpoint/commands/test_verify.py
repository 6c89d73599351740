"""`camshaft verify`: every byte is read, and the exit code says whether all are whole."""

import os


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_whole_ones_are_whole(save, camshaft, tmp_path):
    save(1), save(2)
    assert camshaft("verify", tmp_path / "run") == (
        *(0, ["iteration-0000000001  whole", "iteration-0000000002  whole"], []),
    )


def test_one_changed_bit_is_found_and_named(save, camshaft, tmp_path):
    path = save(1)
    save(2)
    flip(path / "state.json")
    code, lines, _ = camshaft("verify", tmp_path / "run")
    assert (code, lines[1]) == (1, "iteration-0000000002  whole")
    assert lines[0].startswith("iteration-0000000001  broken: state.json is damaged")


def test_one_without_a_manifest_is_broken_too(save, camshaft, tmp_path):
    os.remove(save(1) / "manifest.json")
    for path in (tmp_path / "run", tmp_path / "run" / "iteration-0000000001"):
        code, lines, _ = camshaft("verify", path)
        assert (code, len(lines)) == (1, 1)
        assert lines[0].startswith("iteration-0000000001  broken: ")
        assert "No such file" in lines[0]


def test_one_checkpoint_may_be_named(save, camshaft):
    path, other = save(1), save(2)
    flip(other / "state.json")
    assert camshaft("verify", path)[:2] == (0, ["iteration-0000000001  whole"])
    assert camshaft("verify", other)[0] == 1


def test_where_there_is_none_the_code_is_2(camshaft, tmp_path):
    assert camshaft("verify", tmp_path) == (2, [], [f"camshaft: {tmp_path} holds no checkpoint"])
    missing = tmp_path / "nowhere"
    assert camshaft("verify", missing) == (2, [], [f"camshaft: {missing} is no directory"])
