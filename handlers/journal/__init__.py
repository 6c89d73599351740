"""The journal: what happened to a run and when, over all of its parts; how to write and read it."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
