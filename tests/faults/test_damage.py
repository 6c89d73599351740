"""Damaged checkpoints: all of them are found and named, and the newest good one is used."""

import os
import random
import shutil

import pytest

from camshaft.handlers import best
from camshaft.handlers.checkpoint import BrokenCheckpoint, checkpoints
from camshaft.handlers.checkpoint.directory import verified_at

NEWEST, OLDER = "iteration-0000000002", "iteration-0000000001"
FILES = (
    "manifest.json",
    "model.safetensors",
    "rank-00000.json",
    "state.json",
    "train.safetensors",
)


def passed_over(directory):
    """Why the newest one was not chosen, but the one before it."""
    found = checkpoints(directory)
    saved, broken = found.latest(), sorted(found.broken)
    assert saved is not None
    assert saved.path.name == OLDER
    assert broken == [NEWEST]
    with pytest.raises(BrokenCheckpoint) as caught:
        verified_at(directory / NEWEST)
    return str(caught.value)


def cut(content, chance):
    return content[: chance.randrange(len(content))]


def flip(content, chance):
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]


def blank(content, chance):
    """A block of 4 KB, or what there is of it, as a disk loses it."""
    at = chance.randrange(len(content)) // 4096 * 4096
    block = content[at : at + 4096]
    return content[:at] + bytes(len(block)) + content[at + 4096 :]


@pytest.mark.parametrize(("damage", "count"), [(cut, 30), (flip, 60), (blank, 30)])
def test_every_damage_is_found_and_the_file_is_named(run, damage, count):
    chance = random.Random(count)
    for number in range(count):
        path = run / NEWEST / FILES[number % len(FILES)]
        content = path.read_bytes()
        path.write_bytes(damage(content, chance))
        assert f"{run / NEWEST} is broken: {path.name} " in passed_over(run), number
        path.write_bytes(content)
    assert checkpoints(run).latest().path.name == NEWEST


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_missing_is_named(run, file):
    (run / NEWEST / file).unlink()
    assert f"{file} cannot be read: No such file" in passed_over(run)


@pytest.mark.parametrize("file", [file for file in FILES if file != "state.json"])
def test_a_file_of_another_checkpoint_is_found(run, file):
    """The values of this run's objects, in `state.json`, are the same in both checkpoints."""
    shutil.copy(run / OLDER / file, run / NEWEST / file)
    assert f"is broken: {file} " in passed_over(run)


def test_a_directory_without_files_is_no_checkpoint(run):
    shutil.rmtree(run / NEWEST)
    (run / NEWEST).mkdir()
    assert "manifest.json cannot be read" in passed_over(run)


def test_a_file_that_nobody_listed_is_named_and_does_no_harm(run, caplog):
    (run / NEWEST / "results.csv").write_text("mine")
    assert checkpoints(run).latest().path.name == NEWEST
    assert f"{run / NEWEST} holds files that no checkpoint has: ['results.csv']" in caplog.text


def test_a_directory_under_the_name_of_another_is_found(run):
    (run / NEWEST).rename(run / "aside")
    (run / OLDER).rename(run / NEWEST)
    (run / "aside").rename(run / OLDER)
    with pytest.raises(
        ValueError, match="is good, and a run does not silently start anew"
    ) as caught:
        checkpoints(run).latest()
    assert f"{NEWEST}: manifest.json is of iteration 1: the directory was renamed" in str(
        caught.value
    )
    assert f"{OLDER}: manifest.json is of iteration 2: the directory was renamed" in str(
        caught.value
    )


def test_a_checkpoint_may_be_moved_to_a_place_of_its_own(faults, run, whole):
    moved = (run / NEWEST).rename(run.parent / "mine")
    assert faults.goes_on(run, whole, resume=moved) == 2


@pytest.mark.quick(file=2)
@pytest.mark.parametrize("file", FILES)
def test_a_run_goes_on_exactly_from_the_newest_good_one(faults, run, whole, file, caplog):
    os.truncate(run / NEWEST / file, 100)
    assert faults.goes_on(run, whole) == 1
    assert f"{run / NEWEST} is broken and passed over for {OLDER}" in caplog.text


@pytest.mark.parametrize("resume", [True, "latest", "best"])
def test_where_all_are_damaged_the_error_lists_each_and_no_run_starts(faults, run, capsys, resume):
    for name, file in ((NEWEST, "state.json"), (OLDER, "train.safetensors")):
        os.truncate(run / name / file, 10)
    with pytest.raises(ValueError, match="is good, and a run does not silently start") as caught:
        faults.train(run, until=5, resume=resume, keep=best(1, "loss"))
    assert f"{NEWEST}: state.json has 10 bytes" in str(caught.value)
    assert f"{OLDER}: train.safetensors has 10 bytes" in str(caught.value)
    assert capsys.readouterr().out == "weights unchanged\n"
    assert len(checkpoints(run)) == 2


@pytest.mark.parametrize("seconds", [0, 86_400, -86_400])
def test_the_times_of_files_decide_nothing(faults, run, whole, seconds):
    for path in (run / OLDER, *(run / OLDER).iterdir()):
        newest = (run / NEWEST).stat().st_mtime
        os.utime(path, (newest + seconds, newest + seconds))
    assert faults.goes_on(run, whole) == 2
    assert [each.manifest.iteration for each in checkpoints(run)] == [4, 5]


def test_numbers_decide_and_not_the_order_of_names(faults, tmp_path):
    faults.train(tmp_path, until=11)
    path = tmp_path / "iteration-0000000011"
    assert checkpoints(tmp_path).latest().path == path
    shutil.rmtree(path)
    assert checkpoints(tmp_path).latest().path.name == "iteration-0000000010"
    assert [each.manifest.iteration for each in checkpoints(tmp_path)] == [10]
