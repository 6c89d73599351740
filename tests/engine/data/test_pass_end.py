"""How epochs come to their end, and how the run does: one value, which the loop goes by."""

import pytest

from camshaft import Engine, Events, State
from camshaft.engine.state import End


def ends(data, *, at=None, do=None, epochs=2, iterations=None, **options):
    """The epochs that a run completes, and how it ends; a handler of iteration `at` acts."""
    engine, state, completed = Engine(lambda state, batch: None), State(), []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: completed.append(state.iteration))
    if at is not None:
        engine.on(Events.ITERATION_COMPLETED(at=at))(do)
    engine.run(data, state=state, max_epochs=epochs, max_iterations=iterations, **options)
    return completed, state.epoch, state.end, state.stop_reason


def stop(state):
    state.stop("enough")


def stop_epoch(state):
    state.stop_epoch()


def interrupt(state):
    state.interrupt("asked to")


LIMIT, FINAL, PAUSED = End.LIMIT, End.FINAL, End.PAUSED


@pytest.mark.parametrize(
    ("found", "run"),
    [
        (([3, 6], 2, LIMIT, "max_epochs"), lambda: ends("abc")),
        (([2, 4], 2, LIMIT, "max_epochs"), lambda: ends("abc", max_batches=2)),
        (([5, 10], 2, LIMIT, "max_epochs"), lambda: ends("abc", epoch_length=5)),
        (([3], 1, LIMIT, "max_iterations"), lambda: ends("abc", iterations=3)),
        (([], 1, LIMIT, "max_iterations"), lambda: ends("abc", iterations=2)),
        (([3], 1, FINAL, "enough"), lambda: ends("abc", at=3, do=stop)),
        (([], 1, FINAL, "enough"), lambda: ends("abc", at=2, do=stop)),
        (([], 1, PAUSED, "asked to"), lambda: ends("abc", at=3, do=interrupt)),
        (([2, 5], 2, LIMIT, "max_epochs"), lambda: ends("abc", at=2, do=stop_epoch)),
        (([3], 1, FINAL, "data_ended"), lambda: ends(iter("abc"))),
        (([3], 1, LIMIT, "max_epochs"), lambda: ends(iter("abc"), epochs=1)),
        (([3], 1, FINAL, "data_ended"), lambda: ends(iter("abc"), max_batches=3)),
        (([2, 3], 2, LIMIT, "max_epochs"), lambda: ends(iter("abc"), max_batches=2)),
        (([2, 3], 2, LIMIT, "max_epochs"), lambda: ends(iter("abc"), at=2, do=stop_epoch)),
        (([2, 3], 2, FINAL, "data_ended"), lambda: ends(iter("abc"), max_batches=2, epochs=3)),
        (([2, 3], 2, FINAL, "data_ended"), lambda: ends(iter("abc"), epoch_length=2, epochs=3)),
    ],
)
def test_each_epoch_and_each_run_ends_in_one_way(found, run):
    assert run() == found


def test_a_pass_without_a_batch_is_refused_unless_an_iterator_has_ended():
    for data in ("", iter("")):
        with pytest.raises(ValueError, match="epoch 1 found no batch"):
            ends(data)
