"""What a run's directory tells: curves, clocks, histograms, images, parts, checkpoints."""

from .images import Picture, pictures_to_show
from .parts import RunPart
from .run import PACE, NothingToReportError, RunDirectory, RunFacts, runs_in

__all__ = [
    "PACE",
    "NothingToReportError",
    "Picture",
    "RunDirectory",
    "RunFacts",
    "RunPart",
    "pictures_to_show",
    "runs_in",
]
