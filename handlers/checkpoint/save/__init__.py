"""One run's checkpoints: taken at a commit point, copied, written by a thread, and committed.

Each rank takes its own part of the run, and of the objects what no other rank writes, and copies
the part to memory (`snapshot`). A thread writes its files (`recorder`), and reports to rank 0 that
they are on the disk (`team`). Rank 0 gives the directory its name. One process is a team of one: it
does the same, and sends nothing. Handlers use `Recorder`, which goes through all of it.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
