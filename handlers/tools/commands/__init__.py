"""Commands about whole runs, and about the machine: they print, and give an exit code.

Those about checkpoints are in `handlers/tools/checkpoints`; those of a report, of a config and of
a proof are in the rooms of these.
"""

from .diff import diff
from .doctor import doctor
from .project import init
from .runs import list_runs
from .tail import tail

__all__ = ["diff", "doctor", "init", "list_runs", "tail"]
