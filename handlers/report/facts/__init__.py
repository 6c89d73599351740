"""What a run's directory tells: curves, clocks, histograms, images, parts, checkpoints."""

from .images import Picture, pictures_to_show
from .parts import Part
from .run import PACE, NothingToReportError, Run, RunFacts, runs_in

__all__ = [
    "PACE",
    "NothingToReportError",
    "Part",
    "Picture",
    "Run",
    "RunFacts",
    "pictures_to_show",
    "runs_in",
]
