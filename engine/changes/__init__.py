"""What a run has changed of what its script made, and how a script's things are found."""

from .changes import Changes
from .held import address_of, addresses_in
from .inventory import script_functions
from .reached import (
    attributes_of,
    doubts_of_workers,
    generators_of_run,
    is_kind_of_update,
    mentions,
    reached,
    trains,
)

__all__ = [
    "Changes",
    "address_of",
    "addresses_in",
    "attributes_of",
    "doubts_of_workers",
    "generators_of_run",
    "is_kind_of_update",
    "mentions",
    "reached",
    "script_functions",
    "trains",
]
