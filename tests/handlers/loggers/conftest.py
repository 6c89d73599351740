"""What TensorBoard's own reader finds, and runs that fail and are resumed."""

import pickle

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from camshaft import Engine, Events
from camshaft.handlers.loggers import TensorBoard


@pytest.fixture
def shown(tmp_path):
    """Runs one iteration with these metrics; gives what is read of it."""

    def run(metrics, **arguments):
        engine = Engine(lambda state, batch: state.metrics.update(metrics))
        engine.add(TensorBoard(tmp_path, when=Events.ITERATION_COMPLETED, **arguments))
        engine.run([1], max_epochs=1)
        everything = dict.fromkeys(("scalars", "images", "histograms", "tensors"), 0)
        return EventAccumulator(str(tmp_path), size_guidance=everything).Reload()

    return run


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
