"""Events and triggers, held against a reference that looks at every count; late imports."""

import importlib
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft import EventEnum, Events, Trigger
from camshaft.engine.events import NEVER, Clause
from camshaft.engine.late import late

HORIZON = 60
counts = st.integers(1, 12)
conditions = st.fixed_dictionaries(
    {},
    optional={
        "every": counts,
        "at": counts | st.sets(counts, min_size=1, max_size=4),
        "after": st.integers(0, 12),
        "before": st.integers(1, 40),
        "once": st.booleans(),
    },
)


def matches(count, every=None, at=None, after=None, before=None, once=False, **rest):
    """The definition, written as one would say it."""
    chosen = (
        (every is None or count % every == 0)
        and (at is None or count in ({at} if isinstance(at, int) else at))
        and (after is None or count > after)
        and (before is None or count < before)
    )
    if chosen and once:
        earlier = {"every": every, "at": at, "after": after, "before": before}
        return not any(matches(other, **earlier) for other in range(1, count))
    return chosen


def fired(clause):
    """The counts at which a clause is due, by going from one to the next."""
    due, found = clause.next(0), []
    while due <= HORIZON:
        found.append(due)
        due = clause.next(due)
    return found


@given(conditions)
def test_a_trigger_fires_at_exactly_the_counts_that_fulfil_all_conditions(given_conditions):
    expected = [count for count in range(1, HORIZON + 1) if matches(count, **given_conditions)]
    if not expected:
        with pytest.raises(ValueError, match="can never fire"):
            Events.ITERATION_COMPLETED(**given_conditions)
        return
    (clause,) = Events.ITERATION_COMPLETED(**given_conditions).clauses
    assert fired(clause) == expected


@given(conditions, st.integers(0, HORIZON))
def test_the_next_count_is_the_same_from_wherever_one_asks(given_conditions, start):
    try:
        (clause,) = Events.ITERATION_COMPLETED(**given_conditions).clauses
    except ValueError:
        return
    later = [count for count in fired(clause) if count > start]
    assert clause.next(start) == later[0] if later else clause.next(start) > HORIZON


@given(conditions, conditions)
def test_triggers_are_equal_and_hashable_by_value(first, second):
    try:
        one, other = Events.EPOCH_COMPLETED(**first), Events.EPOCH_COMPLETED(**second)
        again = Events.EPOCH_COMPLETED(**first)
    except ValueError:
        return
    assert one == again
    assert hash(one) == hash(again)
    assert one | other == other | one
    assert len({one, again}) == 1
    assert one | one == one


def test_triggers_with_other_conditions_or_events_differ():
    assert Events.EPOCH_COMPLETED(every=2) != Events.EPOCH_COMPLETED(every=3)
    assert Events.EPOCH_COMPLETED(every=2) != Events.ITERATION_COMPLETED(every=2)
    assert Events.EPOCH_COMPLETED(every=2) != Events.EPOCH_COMPLETED(every=2, last=True)


def test_triggers_cannot_be_changed():
    trigger = Events.EPOCH_COMPLETED(every=2)
    with pytest.raises(AttributeError):
        trigger.clauses = frozenset()
    (clause,) = trigger.clauses
    with pytest.raises(AttributeError):
        clause.every = 3


def test_combining_leaves_the_parts_as_they_were():
    one, other = Events.EPOCH_COMPLETED(every=2), Events.EPOCH_COMPLETED(every=3)
    both = one | other
    assert len(both.clauses) == 2
    assert one == Events.EPOCH_COMPLETED(every=2)
    assert other == Events.EPOCH_COMPLETED(every=3)


def test_an_event_alone_is_each_of_its_occurrences():
    assert Trigger.of(Events.EPOCH_COMPLETED) == Events.EPOCH_COMPLETED()
    assert Events.STARTED | Events.CLOSED == Events.STARTED() | Events.CLOSED()  # noqa: SIM300


def test_triggers_read_as_they_are_written():
    trigger = Events.ITERATION_COMPLETED(every=10, last=True) | Events.STARTED
    assert repr(trigger) == "Events.ITERATION_COMPLETED(every=10, last=True) | Events.STARTED"
    assert repr(Events.EPOCH_COMPLETED(at=[5, 3])) == "Events.EPOCH_COMPLETED(at=(3, 5))"


def test_a_trigger_that_adds_the_end_looks_at_completed_too():
    assert Events.EPOCH_COMPLETED(last=True).events == {Events.EPOCH_COMPLETED, Events.COMPLETED}
    assert Events.EPOCH_COMPLETED(every=2).events == {Events.EPOCH_COMPLETED}


def test_events_survive_pickling_as_the_same_members():
    assert pickle.loads(pickle.dumps(Events.STARTED)) is Events.STARTED


def test_events_of_ones_own_take_the_same_conditions():
    class GanEvents(EventEnum):
        CRITIC_UPDATED = "critic_updated"

    trigger = GanEvents.CRITIC_UPDATED(every=2)
    assert repr(trigger) == "GanEvents.CRITIC_UPDATED(every=2)"
    assert GanEvents.CRITIC_UPDATED.clock == "occurrences"


@pytest.mark.parametrize(
    ("conditions", "error", "says"),
    [
        ({"every": 0}, ValueError, r"Events.EPOCH_COMPLETED\(every=0\): counts start at 1"),
        ({"every": -2}, ValueError, "counts start at 1"),
        ({"every": 2.0}, TypeError, r"\(every=2.0\): needs a whole number; write every=2"),
        ({"every": True}, TypeError, "not a truth value"),
        ({"once": 3}, TypeError, r"once=3\): needs True or False; at=3 is for counts"),
        ({"last": 1}, TypeError, r"last=1\): needs True or False; at=1 is for counts"),
        ({"every": "2"}, TypeError, "needs a whole number"),
        ({"at": 0}, ValueError, "counts start at 1"),
        ({"at": (1, 2.5)}, TypeError, "needs a whole number"),
        ({"at": ()}, ValueError, "can never fire"),
        ({"after": -1}, ValueError, "counts start at 1"),
        ({"before": 1}, ValueError, "can never fire"),
        ({"at": 3, "every": 2}, ValueError, "can never fire"),
        ({"after": 5, "before": 6}, ValueError, "can never fire"),
        ({"seconds": 0}, ValueError, "a time greater than 0"),
        ({"where": 3}, TypeError, "needs a function of the state"),
    ],
)
def test_what_cannot_be_a_condition_is_an_error_that_teaches(conditions, error, says):
    with pytest.raises(error, match=says):
        Events.EPOCH_COMPLETED(**conditions)


def test_counts_of_numpy_are_counts():
    numpy = pytest.importorskip("numpy")
    assert Events.EPOCH_COMPLETED(every=numpy.int64(2)) == Events.EPOCH_COMPLETED(every=2)


def test_a_clause_that_has_had_its_call_is_never_due_again():
    clause = Clause(Events.EPOCH_COMPLETED, every=3, once=True)
    assert clause.next(0) == 3
    assert clause.next(3) == NEVER


@pytest.mark.parametrize(
    "package",
    [
        "camshaft",
        "camshaft.handlers",
        "camshaft.handlers.checkpoint",
        "camshaft.handlers.schedules",
    ],
)
def test_every_public_name_is_there_and_listed(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


def test_what_is_not_there_is_the_usual_error():
    for package in ("camshaft", "camshaft.handlers"):
        with pytest.raises(
            AttributeError, match=f"module '{package}' has no attribute 'Chekpoint'"
        ):
            importlib.import_module(package).Chekpoint  # noqa: B018


def test_what_was_asked_for_once_is_found_without_asking_again():
    module = importlib.import_module("camshaft.handlers")
    vars(module).pop("EarlyStopping", None)
    get, *_ = late("camshaft.handlers")
    assert get("EarlyStopping") is vars(module)["EarlyStopping"]


def test_a_file_does_not_take_the_place_of_the_export_of_its_name():
    room = importlib.import_module("camshaft.handlers.fine_tuning")
    room.load_matching = importlib.import_module(f"{room.__name__}.load_matching")
    assert callable(room.load_matching)
