from .environment import environment as environment
from .file import JOURNAL as JOURNAL
from .file import is_written as is_written
from .journal import Journal as Journal
