"""Steps made faster by torch.compile: which parts are compiled, and what is said about it."""

from .forward import CompiledForward
from .graphs import Graphs
from .options import Compile, options_of, replays
from .problems import explained
from .step import CompiledStep

__all__ = [
    "Compile",
    "CompiledForward",
    "CompiledStep",
    "Graphs",
    "explained",
    "options_of",
    "replays",
]
