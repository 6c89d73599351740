"""The directory of a run is removed, or moved, while the run writes to it."""

import json
import logging
import shutil
import time

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from camshaft import Engine, Events
from camshaft.handlers import (
    CSV,
    Checkpoint,
    HangWatchdog,
    ImageFiles,
    Journal,
    JSONLines,
    RankLogs,
    TensorBoard,
    checkpoints,
)
from camshaft.handlers.files import locked
from camshaft.handlers.loggers import Image
from camshaft.handlers.tools.report import read_journal

EACH = Events.ITERATION_COMPLETED
AT_ONCE = {"background": False, "retries": 0}


def step(state, batch):
    state.metrics["loss"] = 1 / state.iteration


def run(*handlers, do=()):
    """Twelve iterations in four epochs; `do` has what happens after some of them."""
    engine = Engine(step, *handlers, objects={"model": torch.nn.Linear(1, 1)})
    engine.on(EACH)(lambda state: dict(do).get(state.iteration, lambda: None)())
    engine.run(range(3), max_epochs=4)


def rows_of(path):
    return [json.loads(line)["iteration"] for line in path.read_text().splitlines()]


@pytest.mark.quick(kind=2)
@pytest.mark.parametrize("kind", [JSONLines, CSV, TensorBoard])
@pytest.mark.parametrize("saves", [False, True])
def test_rows_go_on_in_a_new_file_and_the_log_says_once_what_is_lost(kind, saves, tmp_path, caplog):
    directory = tmp_path / "run"
    path = directory if kind is TensorBoard else directory / "rows"
    handlers = [kind(path, when=EACH)] + [Checkpoint(directory, **AT_ONCE)] * saves
    run(*handlers, do={5: lambda: shutil.rmtree(directory)})
    lost = [line for line in caplog.messages if "what it held is lost" in line]
    assert len(lost) == 1
    assert not [line for line in caplog.messages if "lacks the last rows" in line]
    assert lost[0].startswith(f"{kind.__name__}: {path}")
    first = 6 if saves else 7  # it is looked for at a save, and in a new epoch
    if kind is TensorBoard:
        assert iterations_in(directory) == list(range(first, 13))
    elif kind is JSONLines:
        assert rows_of(path) == list(range(first, 13))
    else:
        assert [int(line.split(",")[0]) for line in path.read_text().splitlines()[1:]] == list(
            range(first, 13)
        )


def iterations_in(directory):
    events = EventAccumulator(str(directory)).Reload()
    return [event.step for event in events.Scalars("loss")]


@pytest.mark.quick(leaves=1)
@pytest.mark.parametrize("leaves", [8, 7, 9, 10])
def test_a_resumed_run_has_the_rows_of_one_that_was_not_interrupted(leaves, tmp_path):
    def one(directory, **more):
        saves = Checkpoint(directory, when=EACH(every=2), resume=True, **AT_ONCE)
        run(saves, JSONLines(directory / "rows", when=EACH), **more)

    def fail():
        raise RuntimeError("left")

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    one(whole, do={5: lambda: shutil.rmtree(whole)})
    with pytest.raises(RuntimeError, match="left"):
        one(parts, do={5: lambda: shutil.rmtree(parts), leaves: fail})
    one(parts)
    assert rows_of(parts / "rows") == list(range(6, 13))
    assert (parts / "rows").read_bytes() == (whole / "rows").read_bytes()


def test_the_journal_begins_anew_with_what_runs(tmp_path, caplog):
    directory = tmp_path / "run"
    run(
        Journal(directory, config={"lr": 1}),
        Checkpoint(tmp_path / "saves"),
        do={5: lambda: shutil.rmtree(directory)},
    )
    lines = read_journal(directory / "journal.jsonl")
    assert [line["event"] for line in lines] == ["started", *["saving"] * 3, "completed"]
    assert lines[0]["config"] == {"lr": 1}
    assert [line["iteration"] for line in lines] == [0, 6, 9, 12, 12]
    assert sum("journal.jsonl was removed" in line for line in caplog.messages) == 1


def test_a_log_of_a_rank_goes_on_and_tells_of_it_itself(tmp_path, caplog):
    caplog.set_level("WARNING")
    directory = tmp_path / "logs"

    def act():
        shutil.rmtree(directory)
        logging.getLogger("script").warning("something")

    run(RankLogs(directory), do={5: act})
    text = (directory / "rank-0.log").read_text()
    assert "RankLogs: " in text
    assert "rank-0.log was removed while the run wrote to it" in text
    assert text.count("something\n") == 1
    assert sum("rank-0.log was removed" in line for line in caplog.messages) == 1


def test_the_stacks_of_a_hang_have_a_file_again(tmp_path, caplog):
    path = tmp_path / "logs" / "hang.txt"
    engine = Engine(lambda state, batch: time.sleep(0.02), HangWatchdog(0.05, path=path))
    engine.on(EACH(at=2))(lambda state: shutil.rmtree(path.parent))
    engine.run(range(6), max_epochs=1)
    assert (path.parent / "hang-rank0.txt").exists()
    assert sum("hang-rank0.txt was removed" in line for line in caplog.messages) == 1


def test_images_of_later_iterations_are_there(tmp_path):
    def show(state, batch):
        state.metrics["input"] = Image(torch.zeros(1, 2, 2))

    engine = Engine(show, ImageFiles(tmp_path / "images", when=EACH))
    engine.on(EACH(at=2))(lambda state: shutil.rmtree(tmp_path / "images"))
    engine.run(range(4), max_epochs=1)
    names = sorted(each.name for each in (tmp_path / "images").rglob("*.png"))
    assert names in (["2.png", "3.png", "4.png"], ["3.png", "4.png"])


@pytest.mark.parametrize("how", [shutil.rmtree, lambda path: (path / "LOCK").unlink()])
@pytest.mark.parametrize("background", [False, True])
def test_the_new_directory_of_checkpoints_is_locked_too(how, background, tmp_path, caplog):
    directory, refused = tmp_path / "run", []
    saves = Checkpoint(directory, background=background, retries=0)
    engine = Engine(step, saves, objects={"model": torch.nn.Linear(1, 1)})
    engine.on(EACH(at=2))(lambda state: how(directory) if directory.exists() else None)

    @engine.on(EACH(at=5))
    def look(state):
        saves.wait(state)
        with pytest.raises(BlockingIOError) as caught, locked(directory):
            pass
        refused.append(str(caught.value))

    engine.run(range(3), max_epochs=3)
    assert "a run in this very process writes to" in refused[0]
    assert [each.manifest.iteration for each in checkpoints(directory)] == [6, 9]
    assert not (directory / "LOCK").exists()
    assert sum("was removed or moved while the run wrote" in line for line in caplog.messages) == 1


def test_a_run_ends_by_an_error_where_another_has_begun_to_write(tmp_path):
    directory = tmp_path / "run"
    other = locked(directory)

    def take_over():
        directory.rename(tmp_path / "moved")
        directory.mkdir()
        other.__enter__()

    with pytest.raises(BlockingIOError, match="a run in this very process writes to"):
        run(Checkpoint(directory, **AT_ONCE), do={5: take_over})
    other.__exit__(None, None, None)
    assert list(directory.iterdir()) == []


def test_files_of_a_directory_that_is_moved_go_on_where_they_are(tmp_path, caplog):
    directory, moved = tmp_path / "run", tmp_path / "moved"
    run(
        *(JSONLines(directory / "rows", when=EACH), Journal(directory)),
        *(Checkpoint(directory, **AT_ONCE), RankLogs(directory)),
        *(TensorBoard(directory, when=EACH),),
        do={5: lambda: directory.rename(moved)},
    )
    assert rows_of(moved / "rows") == list(range(1, 13))
    assert iterations_in(moved) == list(range(1, 13))
    assert read_journal(moved / "journal.jsonl")[-1]["event"] == "completed"
    assert [each.manifest.iteration for each in checkpoints(moved)] == [3]
    assert [each.manifest.iteration for each in checkpoints(directory)] == [9, 12]
    assert sum("was removed or moved" in line for line in caplog.messages) == 1
