"""How the batches of each epoch come to their end: one value, which the loop goes by."""

import pytest

from camshaft import Engine, Events, State
from camshaft.engine import Loop
from camshaft.engine.data import Feed
from camshaft.engine.moments import Moments


class Told(Feed):
    """A feed that keeps what it has told the loop."""

    def end(self, all_read):
        self.ends = [*getattr(self, "ends", []), super().end(all_read)]
        return self.ends[-1]


def ends(data, *given, at=None, do=None, epochs=2, iterations=None, **options):
    """The ends of the epochs of a run, in which a handler of iteration `at` does something."""
    engine = Engine(lambda state, batch: None)
    if at is not None:
        engine.on(Events.ITERATION_COMPLETED(at=at))(do)
    state = State()
    state.carry_on(epochs, iterations, None)
    feed = Told(data, state, *given, **options)
    Loop(engine, engine.process, Moments(engine.signals), state, feed).run()
    completed = state.epoch if not state.control.in_epoch else state.epoch - 1
    return " ".join(each.value for each in feed.ends), completed, state.stop_reason


def stop(state):
    state.stop("enough")


def stop_epoch(state):
    state.stop_epoch()


def interrupt(state):
    state.interrupt("asked to")


@pytest.mark.parametrize(
    ("found", "run"),
    [
        (("complete complete", 2, "max_epochs"), lambda: ends("abc")),
        (("complete complete", 2, "max_epochs"), lambda: ends("abc", 2)),
        (("complete complete", 2, "max_epochs"), lambda: ends("abc", 5, repeats=True)),
        (("complete", 1, "max_iterations"), lambda: ends("abc", iterations=3)),
        (("left", 0, "max_iterations"), lambda: ends("abc", iterations=2)),
        (("complete", 1, "enough"), lambda: ends("abc", at=3, do=stop)),
        (("left", 0, "enough"), lambda: ends("abc", at=2, do=stop)),
        (("left", 0, "asked to"), lambda: ends("abc", at=3, do=interrupt)),
        (("left complete", 2, "max_epochs"), lambda: ends("abc", at=2, do=stop_epoch)),
        (("final", 1, "data_ended"), lambda: ends(iter("abc"))),
        (("final", 1, "max_epochs"), lambda: ends(iter("abc"), epochs=1)),
        (("complete empty", 1, "data_ended"), lambda: ends(iter("abc"), 3)),
        (("complete final", 2, "max_epochs"), lambda: ends(iter("abc"), 2)),
        (("complete final", 2, "data_ended"), lambda: ends(iter("abc"), 2, epochs=3)),
        (("complete final", 2, "data_ended"), lambda: ends(iter("abc"), 2, repeats=True, epochs=3)),
    ],
)
def test_each_epoch_ends_in_one_way(found, run):
    assert run() == found


def test_a_pass_without_a_batch_is_refused_unless_an_iterator_has_ended():
    for data in ("", iter("")):
        with pytest.raises(ValueError, match="epoch 1 found no batch"):
            ends(data)
