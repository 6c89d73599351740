"""Trackers: services and local boards that get a run's rows by their own clients.

Each file knows one client, and imports it when a run starts.
"""

from ....engine.late import late

__getattr__, __dir__, __all__ = late(__name__)
