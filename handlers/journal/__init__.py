"""The journal: what happened to a run and when, over all of its parts."""

from .journal import Journal

__all__ = ["Journal"]
