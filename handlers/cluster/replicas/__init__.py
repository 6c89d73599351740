"""Replicas of one run: each computes a part of every step, and any of them may be lost."""

from .replicas import Replicas

__all__ = ["Replicas"]
