"""A rank that waits too long says where every rank is."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("stuck_on_ranks.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        "sleeps",
        pytest.param("takes_a_lock_twice", marks=pytest.mark.soak),
        "enters_a_collective_alone",
    ],
)
def test_the_error_of_the_rank_that_waits_holds_both_stacks_and_says_who_is_behind(processes, way):
    waiting, stuck = processes.start_ranks(2, SCRIPT, way)
    with stuck:
        with waiting:
            text = waiting.result().stderr
        stuck.kill()
    note = text[text.index("where 2 of 2 ranks are, those that are behind first:") :]
    behind, waiting = note.split("[rank0]: rank ")[1:]
    has_entered = way == "enters_a_collective_alone"
    if has_entered:  # both wait, each in another function: neither is behind
        waiting, behind = behind, waiting
    assert behind.startswith("1 (")
    assert "iteration 3, Events.ITERATION_STARTED) " in behind
    assert f"{way}: " in behind
    assert "stuck_on_ranks.py:" in behind
    assert (") waits for other ranks in barrier:" if has_entered else ") is here:") in behind
    assert waiting.startswith("0 (")
    assert "iteration 3) waits for other ranks in _engine_run_backward:" in waiting
    assert "supervised/step.py" in waiting


@pytest.mark.slow
def test_a_killed_rank_gives_no_answer_and_the_others_are_where_they_lost_it(processes):
    waiting, stuck = processes.start_ranks(2, SCRIPT, "dies")
    with waiting, stuck:
        text = waiting.result().stderr
    assert "no answer of ranks [1]: ended, killed, stopped or cut off" in text
    assert "rank 0 (" in text[text.index("where 1 of 2 ranks are") :]


@pytest.mark.slow
def test_a_hang_watchdog_writes_one_note_before_any_message_is_over_time(processes):
    waiting, stuck = processes.start_ranks(2, SCRIPT, "sleeps", 1)
    with stuck:
        with waiting:
            text = waiting.result().stderr
        stuck.kill()
        text += stuck.result().stderr
    assert text.index("HangWatchdog: where 2 of 2 ranks are") < text.index("Timed out")
    assert "stuck_on_ranks.py" in text


@pytest.mark.slow
def test_a_signal_to_the_rank_that_waits_shows_all_ranks_and_the_run_continues(processes):
    waiting, _ = processes.run_ranks(2, SCRIPT, "signals_the_other", 600)
    note = waiting.stderr[waiting.stderr.index("where 2 of 2 ranks are") :]
    behind, own = note.split("rank 1 (")[1].split("rank 0 (")
    assert "signals_the_other: " in behind
    assert "waits for other ranks in _engine_run_backward" in own
    assert "Thread 0x" in waiting.stderr  # its own threads, from C
