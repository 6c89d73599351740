from .file import JOURNAL as JOURNAL
from .file import is_written as is_written
from .file import read_journal as read_journal
from .journal import Journal as Journal
