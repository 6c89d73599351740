"""Files of a run directory: opened, read within a budget, and replaced durably.

A run directory may come from elsewhere, so what it holds is not trusted. Nothing here needs torch.
"""

from .budget import (
    DEEPEST,
    LARGEST_HEADER,
    LARGEST_MANIFEST,
    LARGEST_TEXT,
    LONGEST,
    LONGEST_NAME,
    MOST,
    MOST_CHECKPOINTS,
    MOST_CLAIMS,
    MOST_FILES,
    MOST_IMAGES,
    MOST_METRICS,
    MOST_PARTS,
    MOST_RECORDS,
    MOST_SETTINGS,
    MOST_SHOWN,
    fill,
)
from .durable import appearing, beside, make_directory, remove, synchronise
from .lines import record_of, whole_lines
from .lock import locked
from .opening import regular, size_of
from .printable import printable, printable_lines
from .strict_json import text_of, tree_of

__all__ = [
    "DEEPEST",
    "LARGEST_HEADER",
    "LARGEST_MANIFEST",
    "LARGEST_TEXT",
    "LONGEST",
    "LONGEST_NAME",
    "MOST",
    "MOST_CHECKPOINTS",
    "MOST_CLAIMS",
    "MOST_FILES",
    "MOST_IMAGES",
    "MOST_METRICS",
    "MOST_PARTS",
    "MOST_RECORDS",
    "MOST_SETTINGS",
    "MOST_SHOWN",
    "appearing",
    "beside",
    "fill",
    "locked",
    "make_directory",
    "printable",
    "printable_lines",
    "record_of",
    "regular",
    "remove",
    "size_of",
    "synchronise",
    "text_of",
    "tree_of",
    "whole_lines",
]
