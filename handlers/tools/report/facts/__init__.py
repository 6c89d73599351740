"""What a run's directory tells: curves, clocks, histograms, images, parts, checkpoints."""

from .exhibits import Exhibit
from .images import Picture, to_show
from .journal_lines import read_journal
from .notes import Notes
from .parts import RunPart, parts_in
from .run import PACE, NothingToReportError, RunDirectory, RunFacts, by_path, runs_in

__all__ = [
    "PACE",
    "Exhibit",
    "Notes",
    "NothingToReportError",
    "Picture",
    "RunDirectory",
    "RunFacts",
    "RunPart",
    "by_path",
    "parts_in",
    "read_journal",
    "runs_in",
    "to_show",
]
