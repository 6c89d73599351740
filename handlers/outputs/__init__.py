"""What an engine makes of all samples of a data set: in memory, or in files."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
