"""Trackers on a busy machine."""

import pytest


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A busy machine may take longer than a run would wait."""
    monkeypatch.setattr("camshaft.handlers.loggers.delivery.PATIENCE", 100)
