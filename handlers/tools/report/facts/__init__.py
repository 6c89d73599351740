"""What a run's directory tells: curves, clocks, histograms, images, parts, checkpoints."""

from .....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
