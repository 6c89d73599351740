"""The engine: runs, events, states, steps, and the data and modules that they work on.

Its own files are the loop and what it needs. Its rooms are `ranks`, `state`, `data`, `modules`,
`checks`, `inspection`, `update` and `supervised`. Handlers import from here or from a room, never
from a file.
"""

from .late import late

__getattr__, __dir__, __all__ = late(__name__)
