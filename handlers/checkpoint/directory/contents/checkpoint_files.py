"""Where a checkpoint lies, and what its manifest says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...format import Manifest


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint on the disk: its directory, and its manifest, which has been read."""

    path: Path
    manifest: Manifest = field(repr=False)
    """When and why it was written, the metrics at that time, and the checksums of its files."""
