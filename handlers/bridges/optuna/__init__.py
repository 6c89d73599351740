"""Optuna: trials of a sweep end early if they do badly."""

from .optuna_pruning import OptunaPruning

__all__ = ["OptunaPruning"]
