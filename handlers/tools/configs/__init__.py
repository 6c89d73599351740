"""`camshaft run`: a run from one YAML file."""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
