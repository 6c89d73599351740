"""Files of a run directory: opened, read within a budget, and replaced durably.

A run directory may come from elsewhere, so what it holds is not trusted. Nothing here needs torch.
"""

from . import budget
from .budget import DEEPEST, LARGEST_HEADER, LARGEST_TEXT, LONGEST, MOST, Tables
from .durable import appearing, beside, make_directory, remove, synchronise
from .lines import Thinned, record_of, whole_lines
from .lock import locked
from .opening import (
    NotRegularError,
    appending,
    created,
    is_removed,
    path_of,
    refuse_odd,
    regular,
    size_of,
)
from .printable import printable, printable_lines
from .strict_json import text_of, tree_of

__all__ = [
    "DEEPEST",
    "LARGEST_HEADER",
    "LARGEST_TEXT",
    "LONGEST",
    "MOST",
    "NotRegularError",
    "Tables",
    "Thinned",
    "appearing",
    "appending",
    "beside",
    "budget",
    "created",
    "is_removed",
    "locked",
    "make_directory",
    "path_of",
    "printable",
    "printable_lines",
    "record_of",
    "refuse_odd",
    "regular",
    "remove",
    "size_of",
    "synchronise",
    "text_of",
    "tree_of",
    "whole_lines",
]
