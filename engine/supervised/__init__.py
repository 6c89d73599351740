"""The engine of the usual case: a model, an optimizer and a loss function."""
