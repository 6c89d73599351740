"""Files of a run directory: opened, read within a budget, and replaced durably.

A run directory may come from elsewhere, so what it holds is not trusted. Nothing here needs torch.
"""

from .budget import DEEPEST, LARGEST_HEADER, LARGEST_TEXT, LONGEST, MOST
from .durable import appearing, beside, make_directory, remove, synchronise
from .lock import locked
from .opening import regular, size_of
from .strict_json import text_of, tree_of

__all__ = [
    "DEEPEST",
    "LARGEST_HEADER",
    "LARGEST_TEXT",
    "LONGEST",
    "MOST",
    "appearing",
    "beside",
    "locked",
    "make_directory",
    "regular",
    "remove",
    "size_of",
    "synchronise",
    "text_of",
    "tree_of",
]
