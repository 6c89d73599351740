"""Checkpoints on the disks of the hosts.

The ranks that see one directory are a host. Each host has the files of its own ranks and a copy of
those of the host before it (`hosts`), and a manifest of all files. A start takes the newest one of
which every file is somewhere (`bring`).
"""

from .hosts import Hosts
from .local import Local, LocalCheckpoint

__all__ = ["Hosts", "Local", "LocalCheckpoint"]
