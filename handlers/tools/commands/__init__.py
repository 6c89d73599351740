"""Commands about whole runs, and about the machine: they print, and give an exit code.

Those about checkpoints are in `handlers/tools/checkpoints`; those of a report, of a config and of
a proof are in the rooms of these.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
