"""One run's checkpoints: taken at a commit point, copied, written by a thread, and committed.

Each rank takes its own part of the run, and of the objects what no other rank writes, and copies
the part to memory (`snapshot`). A thread writes its files (`recorder`), and reports to rank 0 that
they are on the disk (`team`). Rank 0 gives the directory its name. One process is a team of one: it
does the same, and sends nothing. Handlers use `Recorder`, which goes through all of it.
"""

from .begin import (
    OnFailure,
    check_arguments,
    refuse_second_resume,
    refuse_to_forget,
    refuse_to_mix,
    refuse_unsaveable,
    start_over,
)
from .depot import Again, Depot, Draft
from .gradient_buckets import arrange_buckets, buckets_of, warn_of_buckets
from .read_back import ReadBack
from .recorder import CheckpointMemory, Recorder, SavingHandler
from .snapshot import (
    Snapshot,
    resume_alone,
    save_alone,
    stream_of,
    streamed,
    take,
    take_part,
    take_run,
)
from .team import Buffers, Files, Team, buffers_of_own

__all__ = [
    "Again",
    "Buffers",
    "CheckpointMemory",
    "Depot",
    "Draft",
    "Files",
    "OnFailure",
    "ReadBack",
    "Recorder",
    "SavingHandler",
    "Snapshot",
    "Team",
    "arrange_buckets",
    "buckets_of",
    "buffers_of_own",
    "check_arguments",
    "refuse_second_resume",
    "refuse_to_forget",
    "refuse_to_mix",
    "refuse_unsaveable",
    "resume_alone",
    "save_alone",
    "start_over",
    "stream_of",
    "streamed",
    "take",
    "take_part",
    "take_run",
    "warn_of_buckets",
]
