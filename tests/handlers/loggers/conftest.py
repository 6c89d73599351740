"""Runs that fail and are resumed, and a disk that is full."""

import pickle
import resource
import signal

import pytest

from camshaft import Events

AT_4 = Events.ITERATION_COMPLETED(at=4)


@pytest.fixture
def fail_and_resume():
    """Runs an engine that fails after a save, then one that goes on from there.

    `between` is called before the second one is built.
    """

    def run(build, save=AT_4, *, fail_at=6, data=range(8), max_epochs=1, between=lambda: None):
        saved, first = [], build(fail_at=fail_at)
        first.on(save)(lambda state: state.save("test"))
        first.on(Events.SAVING)(lambda state: saved.append(pickle.dumps(state.state_dict())))
        with pytest.raises(RuntimeError, match="interrupted"):
            first.run(data, max_epochs=max_epochs)
        between()
        second = build()
        if saved:  # else the run starts anew
            second.on(Events.LOADING)(lambda state: state.load_state_dict(pickle.loads(saved[-1])))
        second.run(data, max_epochs=max_epochs)

    return run


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
