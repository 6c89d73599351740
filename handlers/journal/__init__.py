"""The journal: what happened to a run and when, over all of its parts."""

from .file import JOURNAL, is_written
from .journal import Journal

__all__ = ["JOURNAL", "Journal", "is_written"]
