"""tensorboard: curves, read back by its own reader."""

from crossing import adam, exact, network, trained_by

from camshaft import Events
from camshaft.handlers import TensorBoard


@exact("tensorboard", "Logs", 'engine.add(TensorBoard("runs/name"))')
def test_curves(folder):
    """TensorBoard with a row for each iteration; rows after the checkpoint are hidden."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def rows():
        events = EventAccumulator("logs").Reload()
        return [(event.step, event.value) for event in events.Scalars("loss")]

    logger = TensorBoard("logs", when=Events.ITERATION_COMPLETED)
    return trained_by(adam, network, logger, result=rows)
