"""pytorch-ignite's handlers, metrics and loggers on an engine of Camshaft."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
