"""What several handlers need: named objects, media, scalars, comparisons, schedulers, tables."""

from ...engine.events import Events

AT_EACH_ROW = Events.ITERATION_COMPLETED(every=50) | Events.EPOCH_COMPLETED | Events.COMPLETED
"""When loggers write a row, unless they are told otherwise."""
