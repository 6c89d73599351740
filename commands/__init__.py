"""The command line: looks at checkpoints from outside a run; nothing imports it."""
