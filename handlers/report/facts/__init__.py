"""What a run's directory tells: curves, clocks, histograms, images, parts, checkpoints."""

from .images import Picture, to_show
from .notes import Notes
from .parts import RunPart
from .run import PACE, NothingToReportError, RunDirectory, RunFacts, runs_in
from .snapshots import Snapshot

__all__ = [
    "PACE",
    "Notes",
    "NothingToReportError",
    "Picture",
    "RunDirectory",
    "RunFacts",
    "RunPart",
    "Snapshot",
    "runs_in",
    "to_show",
]
