"""Steps made faster by torch.compile: the compiled parts, and reports about their graphs."""

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
