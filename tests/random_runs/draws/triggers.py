"""Triggers, of one or two clauses, as text."""

from hypothesis import strategies as st

CLOCKS = ["ITERATION_COMPLETED", "STEP_COMPLETED", "EPOCH_COMPLETED"]
SIZES = st.integers(1, 3)
FLAGS = st.booleans()
KINDS = st.sampled_from(["torch", "numpy", "python"])


def text(template, **parts):
    """Text with drawn parts."""
    return st.builds(template.format, **parts)


def clauses(events, most=9):
    """A trigger of one clause."""
    every = st.builds("{}(every={})".format, st.sampled_from(events), st.integers(1, most))
    at = st.builds("{}(at={})".format, st.sampled_from(events), st.integers(1, 12))
    others = st.builds(
        "{}({})".format,
        st.sampled_from(events),
        st.sampled_from(
            [
                "last=True",
                "once=True",
                "after=3",
                "before=4",
                "every=3, last=True",
                "after=2, once=True",
            ]
        ),
    )
    return st.one_of(every, every, at, others, st.sampled_from(events))


def triggers(*events):
    """A trigger of one or two clauses."""
    some = clauses(list(events or CLOCKS))
    return st.one_of(some, st.builds("{} | {}".format, some, some))


ANYWHERE = triggers(
    *CLOCKS, "ITERATION_STARTED", "EPOCH_STARTED", "COMPLETED", "BACKWARD_COMPLETED"
)
