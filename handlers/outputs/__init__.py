"""What an engine makes of all samples of a data set: in memory, or in files."""

from .collect import Collect
from .rows import chain, deal, join, rows_of

__all__ = ["Collect", "chain", "deal", "join", "rows_of"]
