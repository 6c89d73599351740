"""Files of a run directory: opened, read within a budget, and replaced durably.

A run directory may come from elsewhere, so what it holds is not trusted. Nothing here needs torch.
"""

from . import budget
from .budget import DEEPEST, LARGEST_HEADER, LARGEST_TEXT, LONGEST, MOST
from .durable import (
    appearing,
    beside,
    link_folder,
    make_directory,
    make_directory_inside,
    named_again,
    put_in_place,
    remove_path,
    replacing,
    shared,
    sweep,
    synchronise,
)
from .lines import lines_from_end, record_of, values_in, whole_lines
from .lock import locked
from .opening import (
    NotRegularError,
    RemovedError,
    appending,
    created,
    opened,
    refuse_odd,
    refuse_odd_directory,
    refuse_removed,
    regular,
    size_of,
)
from .printable import printable, printable_lines, safe_name
from .strict_json import text_of, tree_of

__all__ = [
    "DEEPEST",
    "LARGEST_HEADER",
    "LARGEST_TEXT",
    "LONGEST",
    "MOST",
    "NotRegularError",
    "RemovedError",
    "appearing",
    "appending",
    "beside",
    "budget",
    "created",
    "lines_from_end",
    "link_folder",
    "locked",
    "make_directory",
    "make_directory_inside",
    "named_again",
    "opened",
    "printable",
    "printable_lines",
    "put_in_place",
    "record_of",
    "refuse_odd",
    "refuse_odd_directory",
    "refuse_removed",
    "regular",
    "remove_path",
    "replacing",
    "safe_name",
    "shared",
    "size_of",
    "sweep",
    "synchronise",
    "text_of",
    "tree_of",
    "values_in",
    "whole_lines",
]
