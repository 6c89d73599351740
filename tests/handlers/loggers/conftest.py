"""Runs that fail and are resumed."""

import pickle

import pytest

from camshaft import Events


@pytest.fixture
def fail_and_resume():
    """Runs an engine that fails after the save at iteration 4, then one that goes on from there."""

    def run(build):
        saved, first = [], build(fail_at=6)
        first.on(Events.ITERATION_COMPLETED(at=4))(lambda state: state.save("test"))
        first.on(Events.SAVING)(lambda state: saved.append(pickle.dumps(state.state_dict())))
        with pytest.raises(RuntimeError, match="interrupted"):
            first.run(range(8), max_epochs=1)
        second = build()
        second.on(Events.LOADING)(lambda state: state.load_state_dict(pickle.loads(saved[0])))
        second.run(range(8), max_epochs=1)

    return run
