"""The environment of a run: versions, machine, devices, and the commit of its script."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from ...engine import ranks
from ..common import version_of

PACKAGES = ("camshaft", "torch", "numpy")


def environment() -> dict[str, str]:
    """Facts about this process by name, without paths and environment variables.

    >>> environment()["python"] == platform.python_version()
    True
    """
    facts = {"python": platform.python_version()}
    facts |= {name: version_of(name) or "" for name in PACKAGES}
    facts |= {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "host": platform.node(),
        "devices": _devices(),
        "ranks": str(ranks.world_size()),
        "script": Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "",
        "commit": _commit(),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _devices() -> str:
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return f"CPU, {os.cpu_count()} cores"


def _commit() -> str:
    """The commit of the script's folder; with `-dirty` if a file was changed since."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if sys.argv and sys.argv[0].endswith(".yaml"):  # of `camshaft run`
        script = sys.argv[0]
    folder = Path(script).parent if script else Path.cwd()
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):  # no git, or a slow folder
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
