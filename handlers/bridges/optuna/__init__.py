"""Optuna: trials of a sweep end early if they do badly."""

from .pruning import OptunaPruning

__all__ = ["OptunaPruning"]
