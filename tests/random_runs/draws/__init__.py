"""What hypothesis draws: the text of a script, and the moments at which its run is left."""

from .data import SOURCES
from .scripts import scripts

__all__ = ["SOURCES", "scripts"]
