"""The loop, its events and its state, and the training half of a step."""
