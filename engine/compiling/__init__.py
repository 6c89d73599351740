"""Steps made faster by torch.compile: which parts are compiled, and what is said about it."""

from .forward import CompiledForward, explained
from .options import Compile, options_of, replays
from .step import CompiledStep

__all__ = [
    "Compile",
    "CompiledForward",
    "CompiledStep",
    "explained",
    "options_of",
    "replays",
]
