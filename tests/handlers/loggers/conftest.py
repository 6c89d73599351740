"""A disk that is full."""

import resource
import signal

import pytest


@pytest.fixture
def limit():
    """Lets files grow to so many bytes, as a full disk would, pytest's own too; None for no end."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def set_limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (before[0] if size is None else size, before[1]))

    yield set_limit
    set_limit(None)
    signal.signal(signal.SIGXFSZ, handler)
