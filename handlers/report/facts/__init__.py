"""What a run's directory tells: curves, clocks, histograms, images, parts, checkpoints."""

from .images import Picture, shown
from .parts import Part, number_in
from .run import PACE, NothingToReportError, Run, RunFacts, runs_in

__all__ = [
    "PACE",
    "NothingToReportError",
    "Part",
    "Picture",
    "Run",
    "RunFacts",
    "number_in",
    "runs_in",
    "shown",
]
