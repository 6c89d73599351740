"""The journal: what happened to a run and when, over all of its parts."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
