"""The commands that look at checkpoints: inspect, verify, prune, export."""
