"""The journal: what happened to a run and when, over all of its parts; how to write and read it."""

from .file import JOURNAL, is_written, read_journal
from .journal import Journal

__all__ = ["JOURNAL", "Journal", "is_written", "read_journal"]
