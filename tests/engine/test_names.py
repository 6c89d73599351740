"""Names that do not exist: the error says which one was meant."""

import copy
import pickle

import pytest

from camshaft import Engine, EventEnum, Events, State
from camshaft.engine.names import OF_ENGINES, OF_EVENTS, OF_STATES


class Gan(EventEnum):
    CRITIC_UPDATED = "critic_updated"


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [
        (Events, "EPOCH_COMPLETE", "; did you mean 'EPOCH_COMPLETED'?"),
        (Events, "epoch_started", "; did you mean 'EPOCH_STARTED'?"),
        (Events, "EXCEPTION_RAISED", "; write Events.FAILED"),
        (Gan, "CRITIC_UPDATE", "; did you mean 'CRITIC_UPDATED'?"),
        (Engine(print), "add_event_handler", "; write @engine.on(Events.EPOCH_COMPLETED(every=2))"),
        (Engine(print), "fit", "; write engine.run(loader, max_epochs=...)"),
        (Engine(print), "state", "; write state = engine.run(loader, max_epochs=...)"),
        (Engine(print), "evalute", "; did you mean 'evaluate'?"),
        (Engine(print), "quux", ""),
    ],
)
def test_the_error_says_what_to_write(owner, name, meant):
    with pytest.raises(AttributeError) as error:
        getattr(owner, name)
    message = str(error.value)
    assert f"no attribute {name!r}{meant}" in message
    assert bool(meant) == ("; " in message)
    assert not hasattr(owner, name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_iters", "; write state.max_iterations"),
        ("global_step", "; write state.step"),
        ("stop_epochs", "; did you mean 'stop_epoch'?"),
        ("iterations", "; did you mean 'iteration'?"),
    ],
)
def test_a_note_says_what_to_write_for_an_attribute_that_no_state_has(name, meant):
    def process(state, batch):
        return getattr(state, name)

    with pytest.raises(AttributeError) as error:
        Engine(process).run([1], max_epochs=1)
    assert f"a State has no attribute {name!r}{meant}" in error.value.__notes__[-1]


def test_every_word_of_another_library_leads_to_something_that_does_not_have_its_name():
    assert not [name for name in OF_ENGINES if hasattr(Engine, name)]
    assert not [name for name in OF_EVENTS if hasattr(Events, name)]
    assert not [name for name in OF_STATES if hasattr(State, name)]


def test_python_itself_adds_no_second_suggestion(processes):
    script = "from camshaft import Events\nEvents.EPOCH_COMPLETE\n"
    stderr = processes.run(script, code=1).stderr
    assert "'EPOCH_COMPLETE'; did you mean 'EPOCH_COMPLETED'?\n" in stderr


def test_events_and_states_are_still_copied_and_pickled():
    trigger = Events.EPOCH_COMPLETED(every=2) | Gan.CRITIC_UPDATED
    assert copy.deepcopy(trigger) == trigger
    assert pickle.loads(pickle.dumps(Events.SAVING)) is Events.SAVING
    assert copy.copy(State(epoch=3)).epoch == 3


def test_the_error_of_a_property_is_its_own():
    class Named(Engine):
        @property
        def title(self):
            return "a name".titel

    with pytest.raises(AttributeError, match="^'str' object has no attribute 'titel'"):
        _ = Named(lambda state, batch: None).title
