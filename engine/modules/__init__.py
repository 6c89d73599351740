"""Modules of torch: their wrappers, weights, activations, and evaluation without a trace."""
