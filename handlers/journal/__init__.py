"""The journal: what happened to a run and when, over all of its parts; how to write and read it."""

from .journal import Journal
from .lines import JOURNAL, is_written, read_journal

__all__ = ["JOURNAL", "Journal", "is_written", "read_journal"]
