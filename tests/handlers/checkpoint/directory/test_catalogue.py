"""Which checkpoint is gone on from: the newest good one, the best, or an error; never nothing."""

import logging
import math
import os

import pytest

from camshaft.handlers.checkpoint.directory import checkpoints, verified_at, write_checkpoint
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.snapshot import Snapshot
from camshaft.handlers.checkpoint.staging import streamed

EMPTY = Snapshot({}, {"train": {}})


def save(directory, iteration, **metrics):
    return write_checkpoint(
        directory, streamed(EMPTY), Manifest(iteration=iteration, metrics=metrics)
    ).path


def latest(directory):
    found = checkpoints(directory)
    saved = found.latest()
    assert saved is not None
    return saved.path, sorted(found.broken)


def best(directory, metric, mode="min"):
    found = checkpoints(directory)
    saved = found.best(metric, mode)
    assert saved is not None
    return saved.path, sorted(found.broken)


def damage(path):
    os.truncate(path / "state.json", 1)


def test_the_newest_is_chosen_by_the_order_of_writing(tmp_path):
    paths = [save(tmp_path, iteration) for iteration in (10, 30, 20)]
    assert latest(tmp_path) == (paths[2], [])


@pytest.mark.parametrize("exists", [False, True])
def test_where_there_is_none_at_all_none_is_chosen(tmp_path, exists):
    if exists:
        (tmp_path / "run").mkdir()
    found = checkpoints(tmp_path / "run")
    assert (found, found.broken) == ([], {})
    assert found.latest() is None
    assert found.best("loss") is None


def test_broken_ones_are_passed_over_loudly(tmp_path, caplog):
    paths = [save(tmp_path, iteration) for iteration in (1, 2, 3)]
    damage(paths[2])
    (paths[1] / "manifest.json").unlink()
    with caplog.at_level(logging.WARNING, "camshaft"):
        assert latest(tmp_path) == (paths[0], [paths[1].name, paths[2].name])
    assert f"{paths[2]} is broken and passed over" in caplog.text
    assert "state.json has 1 bytes and should have 2" in caplog.text
    assert "manifest.json" in caplog.text


def test_where_none_is_good_the_error_lists_each_reason(tmp_path):
    for iteration in (1, 2):
        damage(save(tmp_path, iteration))
    with pytest.raises(ValueError, match="is good, and a run does not silently start") as caught:
        checkpoints(tmp_path).latest()
    assert "iteration-0000000001: state.json" in str(caught.value)
    assert "iteration-0000000002: state.json" in str(caught.value)


def test_the_best_is_chosen_by_its_score_and_after_it_the_next_best(tmp_path):
    scores = [math.nan, 0.5, 0.9, 0.7]
    paths = [save(tmp_path, n, accuracy=score) for n, score in enumerate(scores)]
    assert best(tmp_path, "accuracy", mode="max") == (paths[2], [])
    damage(paths[2])
    assert best(tmp_path, "accuracy", mode="max") == (paths[3], [paths[2].name])


def test_a_score_that_none_has_is_an_error_that_lists_those_there_are(tmp_path):
    save(tmp_path, 1, loss=0.5)
    with pytest.raises(ValueError, match="has the metric 'accuracy'; they have: 'loss'"):
        checkpoints(tmp_path).best("accuracy", mode="max")


def test_a_path_means_that_checkpoint_and_no_other(tmp_path):
    path, other = save(tmp_path, 1), save(tmp_path, 2)
    assert verified_at(path).path == path
    damage(other)
    with pytest.raises(ValueError, match=r"iteration-0000000002 is broken: state\.json has 1"):
        verified_at(other)
    with pytest.raises(FileNotFoundError, match="nowhere' does not exist"):
        verified_at(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"is a directory of checkpoints; name one .*0000000002'"):
        verified_at(tmp_path)


def test_the_best_is_the_best_as_the_run_had_it(tmp_path):
    for iteration, score in enumerate((0.5, 0.9, 0.6), 1):
        manifest = Manifest(
            iteration=iteration, metrics={"score": score}, keep="best(1, 'score', mode='max')"
        )
        write_checkpoint(tmp_path, streamed(EMPTY), manifest)
    saved = checkpoints(tmp_path).best("score")
    assert saved is not None
    assert saved.manifest.iteration == 2


def test_where_no_run_has_said_what_is_better_the_mode_is_asked_for(tmp_path):
    save(tmp_path, 1, score=0.5)
    with pytest.raises(ValueError, match="needs mode='min' or mode='max'"):
        checkpoints(tmp_path).best("score")
