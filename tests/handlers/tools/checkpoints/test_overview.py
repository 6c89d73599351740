"""`camshaft inspect` and `camshaft verify`: a line for each checkpoint, and the exit code."""

import json
import math
import os
import sys

import pytest


def run_of_four(save):
    return [save(n, loss, reason="epoch") for n, loss in enumerate([0.9, 0.1, 0.5, math.nan], 1)]


def test_each_checkpoint_is_a_line_with_what_it_is_and_what_keeps_it(save, camshaft, tmp_path):
    run_of_four(save)
    code, lines, errors = camshaft("inspect", tmp_path / "run")
    assert (code, errors, len(lines)) == (0, [], 6)
    assert lines[0].startswith(f"{tmp_path / 'run'}: 4 checkpoints, 0 broken, ")
    assert lines[0].endswith("; the run keeps best(1, 'loss', mode='min') | latest(2)")
    assert lines[1].split()[:4] == ["checkpoint", "epochs", "iteration", "step"]
    ends = [" nothing  epoch  loss=0.9", " best     epoch  loss=0.1"]
    ends += [" latest   epoch  loss=0.5", " latest   epoch  loss=nan"]
    assert [line.endswith(end) for line, end in zip(lines[2:], ends, strict=True)] == [True] * 4
    assert [line.split()[1] for line in lines[2:]] == ["0", "0", "0", "LATEST"]


def test_a_broken_one_is_told_with_why(save, camshaft, tmp_path):
    paths = run_of_four(save)
    os.truncate(paths[1] / "state.json", 1)
    (paths[2] / "manifest.json").write_text("{}")
    code, lines, _ = camshaft("inspect", tmp_path / "run")
    assert (code, len(lines)) == (1, 6)
    assert "2 broken" in lines[0]
    (cut,) = (line for line in lines if line.startswith(paths[1].name))
    assert cut.endswith("broken: state.json has 1 bytes and should have 15")
    (unreadable,) = (line for line in lines if line.startswith(paths[2].name))
    assert "broken: manifest.json cannot be used" in unreadable
    (first,) = (line for line in lines if line.startswith(paths[0].name))
    assert " best, latest " in first  # a broken one is neither best nor one of the latest


def test_damage_that_sizes_do_not_show_takes_a_full_read(save, camshaft, tmp_path):
    state = save(1) / "state.json"
    state.write_bytes(b"x" * state.stat().st_size)
    assert camshaft("inspect", tmp_path / "run")[0] == 0
    code, lines, _ = camshaft("inspect", tmp_path / "run", "--verify")
    assert code == 1
    assert "broken: state.json is damaged" in lines[-1]


@pytest.mark.parametrize("keep", ["", "import os", "keep_all()"])
def test_claims_that_cannot_be_read_are_unknown(save, camshaft, tmp_path, keep):
    save(1, 0.5, keep=keep)
    code, lines, _ = camshaft("inspect", tmp_path / "run")
    assert code == 0
    assert "the run keeps" not in lines[0]
    assert " unknown " in lines[2]


def test_programs_get_all_of_it_as_json(save, camshaft, tmp_path):
    paths = run_of_four(save)
    os.truncate(paths[2] / "state.json", 1)
    (paths[0] / "manifest.json").unlink()
    code, lines, _ = camshaft("inspect", tmp_path / "run", "--json")
    first, second, third, fourth = json.loads("\n".join(lines), parse_constant=pytest.fail)
    assert code == 1
    assert (first["path"], first["latest"]) == (str(paths[0]), False)
    assert "No such file" in first["broken"]
    assert (second["broken"], second["metrics"], second["iteration"]) == (None, {"loss": 0.1}, 2)
    assert second["kept_by"] == ["best(1, 'loss', mode='min')", "latest(2)"]
    assert third["broken"] == "state.json has 1 bytes and should have 15"
    assert third["kept_by"] is None
    assert (fourth["latest"], fourth["metrics"], fourth["why"]) == (True, {"loss": "nan"}, "epoch")
    assert math.isnan(float(fourth["metrics"]["loss"]))
    assert fourth["size"] == sum(fourth["files"].values())


def test_on_a_terminal_the_metrics_that_fit_are_shown_and_those_of_the_claims_first(
    save, camshaft, tmp_path, monkeypatch
):
    more = {f"metric{n}": 1.0 for n in range(9)}
    save(1, 0.5, keep="best(1, 'metric8', mode='min')", metrics=more)
    (line,) = camshaft("inspect", tmp_path / "run")[1][2:]
    assert line.count("=1") == 9
    begin = line.index("metric8=1, loss=0.5, metric0=1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for space, end in ((40, "metric8=1, loss=0.5, metric0=1, ..."), (1, "metric8=1, ...")):
        monkeypatch.setenv("COLUMNS", str(begin + space))
        (line,) = camshaft("inspect", tmp_path / "run")[1][2:]
        assert line[begin:] == end


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


def test_where_there_is_none_the_code_is_2(camshaft, tmp_path):
    assert camshaft("verify", tmp_path) == (2, [], [f"camshaft: {tmp_path} holds no checkpoint"])
    missing = tmp_path / "nowhere"
    assert camshaft("verify", missing) == (2, [], [f"camshaft: {missing} is no directory"])
