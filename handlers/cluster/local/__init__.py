"""Checkpoints on the disks of the hosts.

The ranks that see one directory are a host. Each host has the files of its own ranks and a copy of
those of the host before it (`hosts`), and a manifest of all files. A start takes the newest one of
which every file is on some host: it puts that into the directory that all hosts share (`whole`), or
if there is no such directory, into that of each host (`spread`), and resumes it from there.
"""

from .hosts import Hosts
from .local import Local, LocalCheckpoint
from .spread import ObjectStore

__all__ = [
    "Hosts",
    "Local",
    "LocalCheckpoint",
    "ObjectStore",
]
