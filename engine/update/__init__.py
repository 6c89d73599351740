"""From a loss to an optimizer step: accumulation windows, averaging over ranks, loss scaling."""
