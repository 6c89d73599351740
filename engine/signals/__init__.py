"""Signals: blinker's, but ordered, strong, and known to the runs that listen."""

from .attached import Attached
from .functions import (
    Process,
    Receiver,
    Subscription,
    Watch,
    check_arity,
    is_defined_again,
    is_of_a_cell,
    is_same,
    label,
    source,
)
from .signals import Signal, Signals

__all__ = [
    "Attached",
    "Process",
    "Receiver",
    "Signal",
    "Signals",
    "Subscription",
    "Watch",
    "check_arity",
    "is_defined_again",
    "is_of_a_cell",
    "is_same",
    "label",
    "source",
]
