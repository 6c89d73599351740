"""The report of a run as one HTML page, and the server that shows the page while the run goes on.

Reads what `JSONLines`, `Journal` and `Checkpoint` wrote into a run's directory; imports no torch.
"""

from .facts import NothingToReportError
from .page import RunReport, report, write_report
from .server import make_server, watch

__all__ = [
    "NothingToReportError",
    "RunReport",
    "make_server",
    "report",
    "watch",
    "write_report",
]
