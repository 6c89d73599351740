"""The report of a run as one HTML page, and the server that shows the page while the run goes on.

Reads what `JSONLines`, `Journal` and `Checkpoint` wrote into a run's directory; imports no torch.
"""

from .facts import NothingToReportError, RunDirectory, RunFacts, by_path, parts_in, read_journal
from .figures import outcome
from .page import RunReport, report, write_report
from .server import make_server, watch
from .summary import key_result, status

__all__ = [
    "NothingToReportError",
    "RunDirectory",
    "RunFacts",
    "RunReport",
    "by_path",
    "key_result",
    "make_server",
    "outcome",
    "parts_in",
    "read_journal",
    "report",
    "status",
    "watch",
    "write_report",
]
