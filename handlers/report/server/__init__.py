"""The server of `camshaft watch`: who may ask, how many may ask at once, and what they are told."""

from .view import View
from .watch import make_server, watch

__all__ = ["View", "make_server", "watch"]
