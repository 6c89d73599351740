"""What a run's directory tells: curves, clocks, histograms, images, parts, checkpoints."""

from .exhibits import Exhibit
from .journal_lines import read_journal
from .notes import Notes
from .parts import RunPart, parts_in
from .pictures import Picture, to_show
from .run_facts import PACE, NothingToReportError, RunDirectory, RunFacts, by_path, runs_in

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
