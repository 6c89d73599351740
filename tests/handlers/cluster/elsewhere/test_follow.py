"""The checkpoints of a run, as a script that follows it gets them."""

import logging
import math
import os
import shutil
import sys

import pytest

from camshaft import Engine
from camshaft.handlers import Checkpoint, ValidateElsewhere, checkpoints, follow
from camshaft.handlers.checkpoint import BrokenCheckpoint, Directory
from camshaft.handlers.cluster.results import Results

ASKED = "evaluate val"


def iterations(found):
    return [saved.manifest.iteration for saved in found]


def result_of(directory, saved):
    results = Results(directory, "val")
    return results.read(results.folder / saved.result)


def test_it_gives_those_that_were_asked_for_or_all_or_the_newest(tmp_path, save):
    for iteration in range(1, 5):
        save(iteration, reason=f"seldom, {ASKED}" if iteration % 2 else "often")
    assert iterations(follow(tmp_path / "run", idle=0)) == [1, 3]
    assert iterations(follow(tmp_path / "run", name="test", idle=0)) == []
    assert iterations(follow(tmp_path / "run", which="every", idle=0)) == [1, 2, 3, 4]
    newest = follow(tmp_path / "run", which="newest", idle=0)
    assert next(newest).manifest.iteration == 4
    save(5), save(6)
    assert iterations(newest) == [6]


def test_what_has_a_result_is_not_given_again(tmp_path, save):
    for iteration in (1, 2):
        save(iteration, reason=ASKED)
    for saved in follow(tmp_path / "run", idle=0):
        assert saved.write({"loss": 0.5})
        assert not saved.write({"loss": 0.25})  # what is written first counts
        break  # it is killed
    assert iterations(follow(tmp_path / "run", idle=0)) == [2]
    assert iterations(follow(tmp_path / "run", idle=0)) == [2]  # without a result, it is given


def test_it_ends_when_the_run_has_completed_and_all_was_given(tmp_path, save):
    save(1, reason=ASKED)
    Results(tmp_path / "run", "val").make()
    Results(tmp_path / "run", "val").complete(1)
    assert iterations(follow(tmp_path / "run")) == [1]


def test_it_follows_a_run_that_has_not_begun(tmp_path, save):
    following = follow(tmp_path / "run", idle=0.1)
    assert iterations(following) == []
    save(1, reason=ASKED)
    assert iterations(follow(tmp_path / "run", idle=0)) == [1]


def test_a_checkpoint_that_is_dropped_can_be_read_until_the_next_one(tmp_path, save):
    first = save(1, reason=ASKED)
    following = follow(tmp_path / "run", idle=0)
    saved = next(following)
    shutil.rmtree(first)
    assert saved.problem() is None
    assert saved.write({"loss": 1.0})
    assert [*following] == []
    assert not saved.path.exists()
    assert os.listdir(tmp_path / "run/evaluations/val") == [saved.result]


def test_a_checkpoint_that_is_dropped_before_it_is_read_is_skipped(
    tmp_path, save, monkeypatch, caplog
):
    first = save(1, reason=ASKED)
    save(2, reason=ASKED)
    place = Results.place

    def drop(self, saved):
        found = place(self, saved)
        if saved.path == first:
            shutil.rmtree(first)
        return found

    monkeypatch.setattr(Results, "place", drop)
    assert iterations(follow(tmp_path / "run", idle=0)) == [2]
    assert f"skipped: {first} was dropped before it could be read" in caplog.text


def test_one_that_gets_metrics_meanwhile_is_given_at_the_next_look(tmp_path, save, monkeypatch):
    save(1, reason=ASKED)
    place, directory = Results.place, Directory(tmp_path / "run")

    def note(self, saved):
        monkeypatch.setattr(Results, "place", place)
        found = place(self, saved)
        directory.add_metrics(saved, {"val/loss": 1.0}, {"val/loss": 7})
        return found

    monkeypatch.setattr(Results, "place", note)
    following = follow(tmp_path / "run", idle=5)
    assert next(following).manifest.metrics["val/loss"] == 1
    following.close()


def test_without_second_names_the_files_are_those_of_the_run(tmp_path, save, monkeypatch):
    path = save(1, reason=ASKED)

    def link(*args, **kwargs):
        raise OSError("not here")

    monkeypatch.setattr(os, "link", link)
    for saved in follow(tmp_path / "run", idle=0):
        assert saved.path == path
        assert saved.write({"loss": 1.0})
        assert not saved.write({"loss": 2.0})
    assert path.exists()
    assert result_of(tmp_path / "run", saved)["metrics"] == {"loss": 1}


def test_two_scripts_need_two_names(tmp_path, save):
    save(1, reason=ASKED)
    first = follow(tmp_path / "run", idle=0)
    next(first)
    with pytest.raises(BlockingIOError, match="evaluations/val"):
        next(follow(tmp_path / "run", idle=0))
    assert iterations(follow(tmp_path / "run", name="test", which="every", idle=0)) == [1]
    first.close()
    assert iterations(follow(tmp_path / "run", idle=0)) == [1]


def test_a_directory_that_is_removed_and_used_again_is_that_of_a_new_run(tmp_path, save):
    save(1, reason=ASKED)
    following = follow(tmp_path / "run", idle=5)
    next(following).write({"loss": 1.0})
    shutil.rmtree(tmp_path / "run")
    save(1, reason=ASKED)  # of the same weights
    assert next(following).write({"loss": 2.0})
    with pytest.raises(BlockingIOError, match="evaluations/val"):
        next(follow(tmp_path / "run", idle=0))
    following.close()


def test_a_result_holds_the_numbers_of_an_evaluation(tmp_path, save):
    save(1, reason=ASKED)
    numbers = {"loss": 0.1, "ratio": math.nan, "most": math.inf, "least": -math.inf, "n": 3}
    for saved in follow(tmp_path / "run", idle=0):
        with pytest.raises(TypeError, match="the name 1 is no text"):
            saved.write({1: 2})
        assert saved.write({**numbers, "names": ["a"]})
        found = Results(tmp_path / "run", "val").read(
            tmp_path / "run/evaluations/val" / saved.result
        )
        assert repr(found["metrics"]) == repr({**numbers, "n": 3.0})


@pytest.mark.parametrize(
    ("given", "said"),
    [({"which": "some"}, "'asked', 'every', 'newest'"), ({"idle": -1}, "needs seconds, from 0")],
)
def test_arguments_that_make_no_sense_are_refused_at_once(tmp_path, given, said):
    with pytest.raises(ValueError, match=said):
        follow(tmp_path, **given)


def test_metrics_that_come_later_leave_a_whole_checkpoint(tmp_path, save, caplog):
    path = save(7, loss=1.0, metrics={"val/loss": 2.0, "val/of_iteration": 5.0})
    directory = Directory(tmp_path / "run")
    (before,) = checkpoints(tmp_path / "run")
    assert math.isnan(before.manifest.score("val/loss"))  # it is of other weights
    assert before.manifest.score("loss") == 1
    directory.add_metrics(before, {"val/loss": 3.0, "val/of_iteration": 7.0}, {"val/loss": 9})
    (after,) = checkpoints(tmp_path / "run")
    assert after.problem() is None
    assert after.foreign == []
    assert (after.manifest.score("val/loss"), after.manifest.written["val/loss"]) == (3, 9)
    assert after.manifest.files == before.manifest.files
    (path / "manifest.json").write_text("{")
    with pytest.raises(BrokenCheckpoint):
        directory.add_metrics(after, {"val/loss": 4.0}, {})
    assert [each.name for each in (tmp_path / "run").iterdir() if each.name[0] == "."] == []


def test_it_says_what_it_waits_for(tmp_path, save, caplog, monkeypatch):
    monkeypatch.setattr(sys.modules[follow.__module__], "QUIET", -1)
    save(1)
    with caplog.at_level(logging.WARNING, "camshaft"):
        assert [*follow(tmp_path / "run", idle=0.5)] == []
    assert "where it has found 1, that a ValidateElsewhere of this name asks for" in caplog.text


RANKS = """
import sys
from camshaft import ranks
from camshaft.handlers import follow

with ranks.process_group("gloo"):
    for saved in follow(sys.argv[1], idle=0):
        assert saved.problem() is None
        print(ranks.rank(), saved.manifest.iteration, saved.write({"loss": 0.5}))
"""


def test_ranks_that_evaluate_together_get_the_same_checkpoints(tmp_path, save, processes):
    save(1, reason=ASKED), save(2, reason=ASKED)
    results = processes.run_ranks(2, RANKS, tmp_path / "run")
    assert [each.stdout for each in results] == [
        f"{rank} 1 True\n{rank} 2 True\n" for rank in range(2)
    ]
    assert iterations(follow(tmp_path / "run", idle=0)) == []


def test_a_run_of_which_nothing_was_evaluated_says_so(tmp_path, caplog):
    engine = Engine(lambda state, batch: None)
    engine.add(ValidateElsewhere(lag=3), Checkpoint(tmp_path))
    engine.run(range(9), max_iterations=5)
    (message,) = (each for each in caplog.messages if "nothing was evaluated" in each)
    assert "when=Events.ITERATION_COMPLETED(every=...)" in message
