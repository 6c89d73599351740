"""Guards of a run: against NaN, spikes of the loss, memory that runs out, and hangs."""

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
