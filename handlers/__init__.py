"""Handlers: what people attach to an engine. Each is a plain value."""

from ..engine.late import late

__getattr__, __dir__, __all__ = late(__name__, public=True)
