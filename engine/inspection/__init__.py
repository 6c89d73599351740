"""What an engine would call and what it did call: tables, a diagram, traces."""
