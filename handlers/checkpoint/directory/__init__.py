"""A directory of checkpoints: finding, reading, writing and dropping them, and its lock."""
