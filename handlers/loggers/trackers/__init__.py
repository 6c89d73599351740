"""Trackers: services and local boards that get a run's rows by their own clients.

Each file knows one client, and imports it when a run starts.
"""
