"""What several handlers need: named objects, media, scalars, comparisons, schedulers, tables."""
