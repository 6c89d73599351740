"""What decides the last bits of a run's numbers, beside its script, its data and its seeds."""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from importlib import metadata
from typing import Any
from warnings import catch_warnings

from .signals import PACKAGE
from .state import accelerator

OF_TORCH = (
    *("get_default_dtype", "get_float32_matmul_precision"),
    "are_deterministic_algorithms_enabled",
)


def of_software() -> dict[str, str]:
    """The versions of packages, and torch's settings that change results.

    >>> of_software()["torch.get_default_dtype()"]
    'torch.float32'
    """
    torch: Any = sys.modules["torch"]
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in (PACKAGE, "numpy"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    found["torch"] = str(torch.__version__)  # with its build: others round in other ways
    with catch_warnings(action="ignore"):  # torch 2.9 warns who reads the precision
        return found | {f"torch.{name}()": str(getattr(torch, name)()) for name in OF_TORCH}


def of_machine() -> dict[str, str]:
    """What decides in which order sums are taken: threads, the processor, the device.

    >>> list(of_machine())
    ['torch.get_num_threads()', 'processor', 'device']
    """
    torch: Any = sys.modules["torch"]
    instructions = torch.backends.cpu.get_cpu_capability()
    kind, device = accelerator(torch)
    name_of = getattr(device, "get_device_name", kind.upper)
    return {
        "torch.get_num_threads()": str(torch.get_num_threads()),
        "processor": f"{platform.machine()} with {instructions}",
        "device": str(name_of()),
    }
