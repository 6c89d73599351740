"""The state of a run: clocks, metrics, what handlers remember, and the place in the data."""
