"""From data sets to loaders: batches, ranks, mixtures, streams, like lengths, padding, packing."""

from ...late import late

__getattr__, __dir__, __all__ = late(__name__)
