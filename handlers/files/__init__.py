"""Files of a run directory: opened, read within a budget, and replaced durably.

A run directory may come from elsewhere, so what it holds is not trusted. Nothing here needs torch.
"""

from importlib import import_module

from ...engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
import_module(".printable", __name__)  # at once, so that no message has control characters
