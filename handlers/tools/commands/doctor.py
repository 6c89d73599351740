"""`camshaft doctor`: what is installed, which devices there are, and a try to save."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import time
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from ...common import aligned, readable_size, show, show_json, version_of
from ...files import created, locked, synchronise

OF_DEVELOPERS = ("bench", "dev", "docs", "examples", "gpu", "lint", "test")
"""Extras that no script needs."""
REQUIREMENT = re.compile(r"([\w.-]+)[^;]*(?:;.*extra == [\"']([\w-]+)[\"'])?")


def doctor(path: Path, as_json: bool) -> int:
    """Print what a run will find here; 1 if it cannot save to the directory."""
    devices = torch_devices()  # first: torch tells its build once it is imported
    needed, lacking = packages()
    facts = {
        "python": f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        **needed,
        **devices,
    }
    problem, figures = tried(path)
    if as_json:
        told = {"path": str(path), "problem": problem, **figures}
        show_json({"facts": facts, "missing_extras": lacking, "directory": told})
        return int(problem is not None)
    works = "whole files last here: {free} free, {milliseconds:.1f} ms for a small durable file"
    shown = {**figures, "free": readable_size(figures.get("free", 0))}
    rows = [*facts.items(), (str(path), problem or works.format_map(shown))]
    rows += [("links", "none: each save writes all files")] * (figures.get("links") is False)
    show(aligned(rows))
    if lacking:
        extras = [(f'pip install "camshaft[{n}]"', ", ".join(each)) for n, each in lacking.items()]
        show(["", "not installed, which some handlers need:", *aligned(extras)])
    return int(problem is not None)


def packages() -> tuple[dict[str, str], dict[str, list[str]]]:
    """The versions of what Camshaft needs, and by extra what is not installed."""
    needed = {"camshaft": version_of("camshaft") or "MISSING"}
    lacking = dict[str, list[str]]()
    for each in requires("camshaft") or []:
        name, extra = REQUIREMENT.match(each).groups()  # type: ignore[union-attr]
        found = version_of(name) or "MISSING"
        if not extra:
            needed[name] = found
        elif extra not in OF_DEVELOPERS and found == "MISSING":
            lacking.setdefault(extra, []).append(name)
    return needed, lacking


def torch_devices() -> dict[str, str]:
    """The devices that torch can use."""
    import torch

    found = {"cpu": f"{os.cpu_count()} cores, {torch.get_num_threads()} threads of torch"}
    for number in range(torch.cuda.device_count()):
        own: Any = torch.cuda.get_device_properties(number)
        found[f"cuda:{number}"] = f"{own.name}, {readable_size(own.total_memory)}"
    if torch.cuda.is_available():
        from torch.cuda import nccl

        found["nccl"] = ".".join(map(str, nccl.version()))
    else:
        built = f"torch is built for CUDA {torch.version.cuda}, and finds no GPU"
        found["cuda"] = built if torch.version.cuda else "torch is built without CUDA"
    if torch.backends.mps.is_available():
        found["mps"] = "available"
    return found


def tried(path: Path) -> tuple[str | None, dict[str, Any]]:
    """Do in a directory what a save does; why it cannot be done, and figures."""
    try:
        with tempfile.TemporaryDirectory(prefix=".camshaft-doctor-", dir=path) as place:
            began, file = time.perf_counter(), Path(place, "file")
            with created(file) as opened:
                opened.write(b"x" * 4096)
            synchronise(file)
            file.rename(file.with_name("renamed"))
            synchronise(Path(place))
            spent = 1000 * (time.perf_counter() - began)
            try:
                os.link(file.with_name("renamed"), file)
                links = True
            except OSError:
                links = False
            with locked(Path(place)):
                pass
        return None, {"free": shutil.disk_usage(path).free, "milliseconds": spent, "links": links}
    except OSError as error:
        return f"no run can save here: {error.strerror or error}", {}
