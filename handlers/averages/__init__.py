"""Averages of a model's weights over a run."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
