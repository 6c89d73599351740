"""Copies of a run's checkpoints and logs in an object store, and the way back to an empty disk.

`Mirror` is a handler, `fetch(url, directory)` a function. What talks to the store, by fsspec, runs
in a process of its own: see `copying.py`. Importing this room imports neither fsspec nor torch.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
