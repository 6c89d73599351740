"""Loggers: rows of what a run measures, none missing and none double after a resume.

A logger is a handler that makes a writer of rows when the run starts. Here are the loggers, the
protocol of a writer, and the media that a metric may be.
"""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
