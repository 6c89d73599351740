"""Steering a run from outside: `camshaft set`, and the handler that does what it asks for.

`ledger.py` has the files between the two; `settings.py` knows what can be set, and to what.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
