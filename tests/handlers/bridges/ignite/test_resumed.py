"""A run with handlers of ignite that is resumed in the middle of an epoch is the same run."""

from pathlib import Path

import pytest
from ignite.engine import Events
from ignite.handlers import (
    Checkpoint,
    CosineAnnealingScheduler,
    DiskSaver,
    EarlyStopping,
    EMAHandler,
    create_lr_scheduler_with_warmup,
)
from ignite.metrics import Accuracy, ConfusionMatrix, Precision, Recall, RunningAverage

from camshaft.handlers import Checkpoint as OurCheckpoint
from camshaft.handlers.checkpoint import checkpoints

from .sides import BATCHES, EPOCHS, ByCamshaft, batches, same

STOPS = [1, BATCHES - 1, BATCHES, BATCHES + 4]


class Whole(ByCamshaft):
    """Everything of ignite that remembers something, on one engine."""

    def __init__(self, folder, stop=None):
        super().__init__()
        trainer, self.seen = self.trainer, []
        cosine = CosineAnnealingScheduler(self.optimizer, "lr", 0.2, 0.01, BATCHES * EPOCHS)
        warm = create_lr_scheduler_with_warmup(cosine, 0.0, 4)
        trainer.add_event_handler(Events.ITERATION_STARTED, warm)
        self.average = EMAHandler(self.model, 0.1, momentum_warmup=0.5, warmup_iters=7)
        self.average.attach(trainer)
        precision, recall = Precision(average=False), Recall(average=False)
        for name, metric in {
            "accuracy": Accuracy(),
            "confusion": ConfusionMatrix(3),
            "f1": (precision * recall * 2 / (precision + recall + 1e-9)).mean(),
            "running": RunningAverage(output_transform=lambda output: output["loss"]),
        }.items():
            metric.attach(trainer, name)
        self.stopping = EarlyStopping(9, lambda engine: -engine.state.metrics["running"], trainer)
        self.stopping.attach(trainer, Events.ITERATION_COMPLETED)
        self.saver = Checkpoint(
            {"model": self.model}, DiskSaver(folder / "pt", require_empty=False), n_saved=2
        )
        trainer.add_event_handler(Events.ITERATION_COMPLETED(every=2), self.saver)

        @self.engine.on(trigger())
        def note(state):
            rate = self.optimizer.param_groups[0]["lr"]
            self.seen.append((state.iteration, rate, dict(state.metrics)))
            if state.iteration == stop:
                state.interrupt("left")

        self.engine.add(OurCheckpoint(folder / "run", resume=True))

    def result(self):
        handlers = (self.average.ema_model, self.stopping, self.saver)
        return [self.weights(), dict(self.state.metrics), *(h.state_dict() for h in handlers)]


def trigger():
    from camshaft import Events as Ours

    return Ours.ITERATION_COMPLETED


@pytest.mark.slow
@pytest.mark.parametrize("stop", STOPS)
def test_resumed_in_mid_epoch(tmp_path, stop):
    whole = Whole(tmp_path / "whole").run(batches())
    first = Whole(tmp_path / "cut", stop).run(batches())
    assert first.state.iteration == stop
    second = Whole(tmp_path / "cut").run(batches())
    assert same(whole.seen, first.seen + second.seen)
    assert same(whole.result(), second.result())


@pytest.mark.slow
def test_killed_in_mid_epoch_it_is_the_same_run(processes, tmp_path):
    script = Path(__file__).with_name("killed.py")
    whole = processes.run(script, tmp_path / "whole", 0).stdout
    processes.run(script, tmp_path / "killed", 10, code=-9)
    assert checkpoints(tmp_path / "killed").latest().manifest.iteration == 8
    assert processes.run(script, tmp_path / "killed", 0).stdout == whole
