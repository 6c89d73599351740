"""Going on from a checkpoint: what differs from the script, and loading all of it or nothing."""
