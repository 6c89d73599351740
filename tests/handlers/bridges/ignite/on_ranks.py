"""Run on two ranks: the same training on ignite's engine and on the bridge, other data on each."""

import json
import sys
from pathlib import Path

import ignite.distributed as idist
import ignite.engine
import torch
from ignite.engine import Events
from ignite.handlers import Checkpoint as IgniteCheckpoint
from ignite.handlers import DiskSaver, EarlyStopping, PiecewiseLinear
from ignite.metrics import Accuracy, Loss, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import camshaft.handlers.bridges.ignite
from camshaft import seed_everything
from camshaft.handlers import Checkpoint

ENGINES = {"ignite": ignite.engine, "bridge": camshaft.handlers.bridges.ignite}
EPOCHS = 3
directory = Path(sys.argv[1])
criterion = nn.CrossEntropyLoss()


class Training:
    """A script for ignite, as its guide to several processes has it."""

    def __init__(self, engines, **options):
        seed_everything(5)
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(48, 4, generator=generator)
        data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
        torch.manual_seed(2)
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2))
        self.model = idist.auto_model(net)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.optimizer = idist.auto_optim(optimizer)
        self.train = idist.auto_dataloader(data, batch_size=8, shuffle=True)
        self.val = idist.auto_dataloader(data, batch_size=16)
        self.seen = []
        self.trainer = engines.create_supervised_trainer(
            *(self.model, self.optimizer, criterion),
            output_transform=lambda x, y, y_pred, loss: (loss.item(), y_pred.detach(), y),
            **options,
        )
        metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}
        self.evaluator = engines.create_supervised_evaluator(self.model, metrics)
        Accuracy(lambda output: output[1:]).attach(self.trainer, "accuracy")
        RunningAverage(output_transform=lambda output: output[0]).attach(self.trainer, "loss")
        schedule = PiecewiseLinear(self.optimizer, "lr", milestones_values=[(0, 0.1), (9, 0.01)])
        self.trainer.add_event_handler(Events.ITERATION_STARTED, schedule)
        stopping = EarlyStopping(2, lambda engine: -engine.state.metrics["loss"], self.trainer)
        self.evaluator.add_event_handler(Events.COMPLETED, stopping)
        self.trainer.add_event_handler(Events.EPOCH_STARTED, self.shuffle)
        self.trainer.add_event_handler(Events.EPOCH_COMPLETED, self.validate)
        self.trainer.add_event_handler(Events.ITERATION_COMPLETED, self.note)

    def shuffle(self, engine):
        self.train.sampler.set_epoch(engine.state.epoch)

    def validate(self, engine):
        self.seen.append(dict(self.evaluator.run(self.val).metrics))

    def note(self, engine):
        state = engine.state
        metrics = dict(state.metrics) | {"lr": self.optimizer.param_groups[0]["lr"]}
        self.seen.append((state.epoch, state.iteration, state.output[0], metrics))

    def run(self, epochs=EPOCHS):
        self.trainer.run(self.train, max_epochs=epochs)
        return self

    @property
    def left(self):
        """All that a run leaves: what handlers saw, weights, momentum, random generators."""
        momentum = self.optimizer.state_dict()["state"]
        weights = [each.tolist() for each in self.model.state_dict().values()]
        return repr((self.seen, weights, momentum, torch.get_rng_state().tolist()))


def at(iteration, action):
    """A handler that does something when an iteration is completed, on rank 1 alone."""

    def act(engine):
        if engine.state.iteration == iteration and idist.get_rank() == 1:
            action(engine)

    return act


def whole(name):
    """A whole run, with a checkpoint of ignite each epoch; its results and its files."""
    training = Training(ENGINES[name])
    to_save = {each: getattr(training, each) for each in ("model", "optimizer", "trainer")}
    saver = IgniteCheckpoint(to_save, DiskSaver(str(directory / name)), n_saved=2)
    training.trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
    training.run()
    idist.barrier()
    files = {path.name: torch.load(path) for path in sorted((directory / name).glob("*.pt"))}
    return training.left, repr(files)


def resumed(name):
    """The same from the last but one of these checkpoints, by ignite's own way."""
    training = Training(ENGINES[name])
    file = sorted((directory / name).glob("*.pt"))[0]
    to_load = {each: getattr(training, each) for each in ("model", "optimizer", "trainer")}
    IgniteCheckpoint.load_objects(to_load, torch.load(file))
    training.run()
    return training.left


def alone(name, order):
    """What each rank sees if rank 1 alone ends its run, where ranks do not wait for each other."""
    seen = []
    engine = ENGINES[name].Engine(lambda engine, batch: seen.append(batch))
    engine.add_event_handler(Events.ITERATION_COMPLETED, at(3, order))
    for event in (Events.EPOCH_COMPLETED, Events.COMPLETED, Events.TERMINATE, Events.INTERRUPT):
        engine.add_event_handler(event, lambda engine: seen.append(engine.last_event_name.name))
    try:
        engine.run(range(4), max_epochs=2)
    except ValueError as error:
        seen.append(str(error))
    else:
        state = engine.state
        seen.append((state.epoch, state.iteration, engine.should_terminate))
    idist.barrier()
    return seen


def fail(engine):
    raise ValueError("no such row")


def one_rank_runs(name):
    """An evaluation that rank 0 alone makes: no message of an engine may wait for rank 1."""
    if idist.get_rank() == 0:
        engine = ENGINES[name].Engine(lambda engine, batch: batch)
        engine.run(DataLoader(torch.arange(6), batch_size=2), max_epochs=2)
        return engine.state.iteration
    return 6


def exactly(folder, left=None):
    """On the bridge, saved by Camshaft in each iteration; interrupted in the middle of epoch 2."""
    training = Training(camshaft.handlers.bridges.ignite)
    when = camshaft.Events.ITERATION_COMPLETED
    training.trainer.add(Checkpoint(directory / folder, when=when, resume=True))
    if left is not None:
        training.trainer.add_event_handler(Events.ITERATION_COMPLETED(once=left[0]), left[1])
    try:
        training.run()
    except ValueError as error:
        assert str(error) == "no such row"  # noqa: PT017  # this is no test function
    return training


def left_by(order):
    """A run that is left in the middle of an epoch, and another one that goes on."""
    first = exactly(order.__name__, (4, order))
    second = exactly(order.__name__)
    is_saved = order is not fail  # the iteration that failed comes again
    second.seen[:0] = first.seen if is_saved else first.seen[:-1]
    return first.trainer.state.iteration, second.left


def terminate(engine):
    engine.terminate()


def end_epoch(engine):
    engine.terminate_epoch()


def interrupt(engine):
    engine.interrupt()


idist.initialize("gloo")
straight = exactly("whole").left
found = {
    "whole": whole("ignite") == whole("bridge"),
    "with Camshaft's checkpoints": straight == Training(ignite.engine).run().left,
    "resumed by ignite": resumed("ignite") == resumed("bridge"),
    "resumed after interrupt": left_by(interrupt) == (4, straight),
    "resumed after an exception": left_by(fail) == (4, straight),
    "alone": {
        order.__name__: alone("ignite", order) == alone("bridge", order)
        for order in (terminate, end_epoch, interrupt, fail)
    },
    "one rank runs": one_rank_runs("bridge") == 6,
}
(directory / f"rank-{idist.get_rank()}.json").write_text(json.dumps(found))
idist.finalize()
