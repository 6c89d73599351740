"""Checkpoints on the disks of the hosts, between those in the directory that all hosts share.

The ranks that see one directory are a host. Each host has the files of its own ranks and a copy of
those of the host before it (`hosts`), and a manifest of all files. A start puts the newest one of
which every file is on some host into the shared directory (`whole`), and resumes it from there.
"""

from .local import Local, LocalRecorder
from .whole import bring_newest, refuse_other_run

__all__ = ["Local", "LocalRecorder", "bring_newest", "refuse_other_run"]
