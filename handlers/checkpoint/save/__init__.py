"""One run's checkpoints: taken at a commit point, copied, written by a thread, and committed.

Each rank takes its own part of the run, and of the objects what no other rank writes (`take`). The
part is copied to memory (`stage`). A thread (`writer`) writes its files, and reports to rank 0 that
they are on the disk (`team`). Rank 0 gives the directory its name. One process is a team of one: it
does the same, and sends nothing. Handlers use `Recorder`, which goes through all of it.
"""

from .alike import Buffers, buffers_of_own
from .alone import resume_alone, save_alone
from .begin import (
    Destination,
    refuse_second_resume,
    refuse_to_forget,
    refuse_to_mix,
    refuse_unsaveable,
    start_over,
)
from .gradient_buckets import arrange_buckets, buckets_of, warn_of_buckets
from .recorder import CheckpointMemory, Content, Recorder
from .round_trip import RoundTrip
from .stage import streamed
from .take import Snapshot, take, take_part, take_run
from .writer import OnFailure

__all__ = [
    "Buffers",
    "CheckpointMemory",
    "Content",
    "Destination",
    "OnFailure",
    "Recorder",
    "RoundTrip",
    "Snapshot",
    "arrange_buckets",
    "buckets_of",
    "buffers_of_own",
    "refuse_second_resume",
    "refuse_to_forget",
    "refuse_to_mix",
    "refuse_unsaveable",
    "resume_alone",
    "save_alone",
    "start_over",
    "streamed",
    "take",
    "take_part",
    "take_run",
    "warn_of_buckets",
]
