"""What several handlers need: media, numbers of metrics, comparisons, schedulers, tables."""
