"""Which checkpoint is gone on from: the newest good one, the best, or an error; never nothing."""

import math
import os
import shutil
from dataclasses import replace

import pytest

from camshaft.handlers.checkpoint.directory import (
    Directory,
    checkpoints,
    saved_at,
    verified_at,
    write,
)
from camshaft.handlers.checkpoint.format import Manifest, Payload

FILES = {"state.json": Payload.of(b'{"objects": {}}')}


def damage(path):
    os.truncate(path / "state.json", 1)


@pytest.mark.parametrize("exists", [False, True])
def test_where_there_is_none_at_all_none_is_chosen(tmp_path, exists):
    if exists:
        (tmp_path / "run").mkdir()
    found = checkpoints(tmp_path / "run")
    assert (found, found.broken) == ([], {})
    assert found.latest() is None
    assert found.best("loss") is None


def test_the_best_is_chosen_by_its_score_and_after_it_the_next_best(save, tmp_path):
    scores = [math.nan, 0.5, 0.9, 0.7]
    paths = [save(n, metrics={"accuracy": score}) for n, score in enumerate(scores)]
    assert checkpoints(tmp_path / "run").best("accuracy", "max").path == paths[2]
    damage(paths[2])
    found = checkpoints(tmp_path / "run")
    assert (found.best("accuracy", "max").path, [*found.broken]) == (paths[3], [paths[2].name])


def test_a_score_that_none_has_is_an_error_that_lists_those_there_are(save, tmp_path):
    save(1, metrics={"loss": 0.5})
    with pytest.raises(ValueError, match="has the metric 'accuracy'; they have: 'loss'"):
        checkpoints(tmp_path / "run").best("accuracy", mode="max")


def test_a_path_means_that_checkpoint_and_no_other(save, tmp_path):
    path, other = save(1), save(2)
    assert verified_at(path).path == path
    damage(other)
    with pytest.raises(ValueError, match=r"iteration-0000000002 is broken: state\.json has 1"):
        verified_at(other)
    with pytest.raises(FileNotFoundError, match="nowhere' does not exist"):
        verified_at(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"is a directory of checkpoints; name one .*0000000002'"):
        verified_at(tmp_path / "run")


def test_the_best_is_the_best_as_the_run_had_it(save, tmp_path):
    for iteration, score in enumerate((0.5, 0.9, 0.6), 1):
        save(iteration, metrics={"score": score}, keep="best(1, 'score', mode='max')")
    assert checkpoints(tmp_path / "run").best("score").manifest.iteration == 2


def test_where_no_run_has_said_what_is_better_the_mode_is_asked_for(save, tmp_path):
    save(1, metrics={"score": 0.5})
    with pytest.raises(ValueError, match="needs mode='min' or mode='max'"):
        checkpoints(tmp_path / "run").best("score")


def test_what_a_run_remembers_of_its_directory_is_what_a_scan_finds(tmp_path, monkeypatch):
    read = []

    def noted(path):
        read.append(path.name)
        return saved_at(path)

    monkeypatch.setattr(write, "saved_at", noted)
    known = Directory(tmp_path)
    for iteration in (1, 2):
        Directory(tmp_path).write(FILES, Manifest(iteration=iteration))
    read.clear()
    for _ in range(2):  # nothing is read twice
        assert [each.manifest.iteration for each in known.scan()] == [1, 2]
        assert [*known.scan()[0].manifest.files] == ["state.json"]
        assert read == ["iteration-0000000001", "iteration-0000000002"]
    known.write(FILES, Manifest(iteration=3))
    read.clear()
    first, second, third = known.scan()
    assert read == []
    # Another manifest, a broken one, a directory that is gone.
    forged = replace(saved_at(first.path).manifest, number=9)
    (first.path / "manifest.json").write_text(forged.to_json() + " ")
    (second.path / "manifest.json").write_text("{")
    shutil.rmtree(third.path)
    assert [each.manifest.number for each in known.scan()] == [9]
    # A link to a directory is no checkpoint, also if it was one before.
    first.path.rename(tmp_path / "elsewhere")
    first.path.symlink_to(tmp_path / "elsewhere")
    assert known.scan() == []
