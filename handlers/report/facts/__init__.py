"""What a run's directory tells: curves, clocks, histograms, images, parts, checkpoints."""

from .exhibits import Exhibit
from .images import Picture, to_show
from .notes import Notes
from .parts import RunPart
from .run import PACE, NothingToReportError, RunDirectory, RunFacts, runs_in

__all__ = [
    "PACE",
    "Exhibit",
    "Notes",
    "NothingToReportError",
    "Picture",
    "RunDirectory",
    "RunFacts",
    "RunPart",
    "runs_in",
    "to_show",
]
