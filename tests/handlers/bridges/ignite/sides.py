"""The same training by ignite's engine and by Camshaft's, for handlers that attach to both."""

import io

import ignite.distributed as idist
import torch
from ignite.engine import Engine as IgniteOwn
from ignite.engine import Events as IgniteEvents
from ignite.handlers import (
    Checkpoint,
    CosineAnnealingScheduler,
    DiskSaver,
    EarlyStopping,
    EMAHandler,
    FastaiLRFinder,
    ProgressBar,
    create_lr_scheduler_with_warmup,
)
from ignite.metrics import Accuracy, ConfusionMatrix, Loss, Precision, Recall, RunningAverage
from torch.nn.functional import cross_entropy

from camshaft import Engine, Events
from camshaft.handlers import as_ignite

BATCHES, EPOCHS = 6, 3


def batches(rank=0, number=BATCHES):
    generator = torch.Generator().manual_seed(7 + rank)
    return [
        (
            torch.randn(5, 4, generator=generator),
            torch.randint(3, (5,), generator=generator),
        )
        for _ in range(number)
    ]


class Parts:
    """A model and its optimizer, the same each time."""

    def __init__(self, rate=0.1):
        torch.manual_seed(3)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)
        self.outputs = {}

    def train(self, batch, ready=lambda: None, done=lambda: None):
        self.model.train()
        inputs, target = batch
        prediction = self.model(inputs)
        loss = cross_entropy(prediction, target)
        self.optimizer.zero_grad()
        loss.backward()
        if idist.get_world_size() > 1:
            for each in self.model.parameters():
                each.grad = idist.all_reduce(each.grad) / idist.get_world_size()
        ready()
        self.optimizer.step()
        done()
        return {"loss": loss.item(), "y_pred": prediction.detach(), "y": target}

    def measure(self, batch):
        self.model.eval()
        with torch.no_grad():
            return {"y_pred": self.model(batch[0]), "y": batch[1]}

    def weights(self):
        return {name: value.clone() for name, value in self.model.state_dict().items()}


class ByIgnite(Parts):
    def __init__(self, rate=0.1):
        super().__init__(rate)
        self.trainer = IgniteOwn(lambda engine, batch: self.train(batch))
        self.evaluator = IgniteOwn(lambda engine, batch: self.measure(batch))

    def run(self, data, **limits):
        self.trainer.run(data, **(limits or {"max_epochs": EPOCHS}))
        return self

    def evaluate(self, data):
        return self.evaluator.run(data).metrics


class ByCamshaft(Parts):
    def __init__(self, rate=0.1):
        super().__init__(rate)
        self.engine = Engine(
            self.step,
            evaluate=lambda state, batch: self.measure(batch),
            objects={"model": self.model, "optimizer": self.optimizer},
        )
        self.trainer = as_ignite(self.engine)
        self.evaluator = as_ignite(self.engine.evaluation)

    def step(self, state, batch):
        return self.train(
            batch,
            lambda: state.fire(Events.GRADIENTS_READY),
            lambda: state.fire(Events.STEP_COMPLETED),
        )

    def run(self, data, **limits):
        self.state = self.engine.run(data, **(limits or {"max_epochs": EPOCHS}))
        return self

    def evaluate(self, data):
        return self.engine.evaluate(data).metrics


class Everything:
    """Handlers of ignite that measure, remember, set, write and show, attached to one side."""

    def __init__(self, side, folder):
        self.side, self.folder, self.console = side, folder, io.StringIO()
        self.metrics, self.rates = [], []
        trainer = side.trainer
        precision, recall = Precision(average=False), Recall(average=False)
        for name, metric in {
            "accuracy": Accuracy(),
            "confusion": ConfusionMatrix(3),
            "loss": Loss(cross_entropy, lambda output: (output["y_pred"], output["y"])),
            "f1": (precision * recall * 2 / (precision + recall + 1e-9)).mean(),
            "running": RunningAverage(output_transform=lambda output: output["loss"]),
        }.items():
            metric.attach(trainer, name)
        cosine = CosineAnnealingScheduler(side.optimizer, "lr", 0.2, 0.01, BATCHES * EPOCHS)
        warm = create_lr_scheduler_with_warmup(cosine, 0.0, 4)
        trainer.add_event_handler(IgniteEvents.ITERATION_STARTED, warm)
        self.average = EMAHandler(side.model, 0.1, momentum_warmup=0.5, warmup_iters=7)
        self.average.attach(trainer)
        self.stopping = EarlyStopping(99, lambda engine: -engine.state.metrics["running"], trainer)
        trainer.add_event_handler(IgniteEvents.ITERATION_COMPLETED, self.stopping)
        bar = {"persist": True, "mininterval": 0, "bar_format": "{desc}[{n}/{total}]{postfix}"}
        ProgressBar(**bar, file=self.console).attach(trainer, ["running"])
        to_save = {"model": side.model, "optimizer": side.optimizer, "trainer": trainer}
        self.saver = Checkpoint(to_save, DiskSaver(folder, require_empty=False), n_saved=2)
        trainer.add_event_handler(IgniteEvents.EPOCH_COMPLETED, self.saver)
        every = IgniteEvents.ITERATION_COMPLETED | IgniteEvents.EPOCH_COMPLETED
        trainer.add_event_handler(every, self.note)

    def note(self, engine):
        self.metrics.append((engine.last_event_name.name, dict(engine.state.metrics)))
        self.rates.append(self.side.optimizer.param_groups[0]["lr"])

    def remembered(self):
        """What a run that is resumed ends with, too."""
        return {
            "weights": self.side.weights(),
            "average": self.average.ema_model.state_dict(),
            "stopping": self.stopping.state_dict(),
            "saver": self.saver.state_dict(),
        }

    def results(self):
        """All that is to be the same on both sides."""
        files = sorted(self.folder.glob("*.pt"))
        return {
            **self.remembered(),
            "metrics": self.metrics,
            "rates": self.rates,
            "console": self.console.getvalue(),
            "files": {path.name: torch.load(path) for path in files},
        }


def found_rates(kind, data):
    """What ignite's finder of learning rates gives on one side; it puts the weights back."""
    side, finder = kind(1e-4), FastaiLRFinder()
    before, kept = side.weights(), {"model": side.model, "optimizer": side.optimizer}
    options = {"num_iter": 20, "end_lr": 3.0}
    with finder.attach(side.trainer, kept, lambda output: output["loss"], **options) as trainer:
        trainer.run(data)
    assert same(before, side.weights())
    results = finder.get_results()
    assert len(results["lr"]) > 10
    return results


def both(attach, data=None, rate=0.1, **limits):
    """Attach the same to both sides and run them; what `attach` gave, and the sides."""
    sides = [ByIgnite(rate), ByCamshaft(rate)]
    given = [attach(side) for side in sides]
    for side in sides:
        side.run(batches() if data is None else data, **limits)
    return given, sides


def same(one, other):
    """Equality of what holds tensors."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def read_events(folder):
    """The scalars and histograms that TensorBoard finds in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"histograms": 0, "scalars": 0})
    events.Reload()
    tags = events.Tags()
    scalars = {n: [(e.step, e.value) for e in events.Scalars(n)] for n in tags["scalars"]}
    histograms = {
        name: [(e.step, e.histogram_value) for e in events.Histograms(name)]
        for name in tags["histograms"]
    }
    return scalars, histograms
