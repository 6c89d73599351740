"""What TensorBoard's own reader finds."""

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
