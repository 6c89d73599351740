"""The report of a run as one HTML page, and the server that shows the page while the run goes on.

Reads what `JSONLines`, `Journal` and `Checkpoint` wrote into a run's directory; imports no torch.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
