"""Usual scripts that are right: Camshaft says nothing, in the whole run and in one that resumes."""

import copy
import logging
from collections import Counter, defaultdict, deque
from io import StringIO

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torchmetrics.classification import MulticlassAccuracy
from tqdm import tqdm

from camshaft import Engine, Events, Update, loader, supervised
from camshaft.handlers import (
    EMA,
    Checkpoint,
    ClipGradNorm,
    EarlyStopping,
    Freeze,
    GradNorm,
    JSONLines,
    LRSchedule,
    Metrics,
    Validate,
    best,
    latest,
)
from camshaft.handlers.schedules import cosine, warmup

STOP = 8
"""The iteration, in the second epoch of six, after which a run is stopped and started again."""


class Run:
    """Runs a script's engine, with checkpoints; the first time up to `STOP` alone."""

    def __init__(self, path, stops=False):
        self.path, self.stops = path, stops

    def __call__(self, engine, data, **limits):
        engine.add(
            Checkpoint(
                self.path, resume=True, when=Events.ITERATION_COMPLETED(every=4), keep=latest(2)
            )
        )
        if self.stops:
            engine.on(Events.ITERATION_COMPLETED(at=STOP))(lambda state: state.interrupt("enough"))
        return engine.run(data, **{"max_epochs": 3, **limits})


def network():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 3))


def pairs(count=24):
    return TensorDataset(torch.randn(count, 4), torch.randint(3, (count,)))


def adam(model):
    return torch.optim.Adam(model.parameters(), 0.01)


def classifier(*handlers, model=None, **options):
    model = model or network()
    return model, supervised(model, adam(model), cross_entropy, **options).add(*handlers)


def usual_handlers(run):
    validation = DataLoader(pairs(), 8)
    schedule = LRSchedule(warmup(3).then(cosine()))
    rows = JSONLines(run.path / "rows.jsonl")
    model, engine = classifier(
        ClipGradNorm(1.0), GradNorm(), schedule, Validate(validation), EMA(0.9), rows
    )
    engine.add(EarlyStopping("val/loss", mode="min", patience=5))
    engine.add(Checkpoint(run.path / "best", keep=best(1, "val/loss")))
    run(engine, DataLoader(pairs(), 4, shuffle=True))
    return model


def schedule_by_hand(run):
    model = network()
    optimizer = adam(model)
    engine, base = supervised(model, optimizer, cross_entropy), 0.01

    @engine.on(Events.ITERATION_STARTED)
    def set_rate(state):
        for group in optimizer.param_groups:
            group["lr"] = base / (1 + state.iteration)

    run(engine, DataLoader(pairs(), 4, shuffle=True))
    return model


def torch_scheduler(run):
    model = network()
    optimizer = adam(model)
    engine = supervised(model, optimizer, cross_entropy)
    engine.add(LRSchedule(torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=18)))
    run(engine, DataLoader(pairs(), 4, shuffle=True))
    return model


def frozen_by_a_handler(run):
    model = nn.ModuleDict({"body": nn.Linear(4, 4), "head": nn.Linear(4, 3)})

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            return self.parts["head"](self.parts["body"](x))

    own, engine = classifier(
        Freeze("parts.body.*", until=Events.EPOCH_COMPLETED(at=1)), model=Both()
    )
    run(engine, DataLoader(pairs(), 4))
    return own


def frozen_before_the_run(run):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[:2].requires_grad_(False)
    trained = [each for each in model.parameters() if each.requires_grad]
    engine = supervised(model, torch.optim.SGD(trained, 0.1), cross_entropy)
    run(engine, DataLoader(pairs(), 4))
    return model


def counters_that_only_report(run):
    model = network()
    optimizer = adam(model)
    update, losses, seen, calls = Update(optimizer), [], Counter(), 0
    by_class, recent = defaultdict(list), deque(maxlen=3)
    bar, written = tqdm(total=18, file=StringIO()), logging.getLogger("of the script")

    def step(state, batch):
        nonlocal calls
        x, target = batch
        loss = cross_entropy(model(x), target)
        update(state, loss)
        losses.append(loss.item())
        recent.append(loss.item())
        seen.update(target.tolist())
        by_class[int(target[0])].append(loss.item())
        calls += 1
        bar.update()
        bar.set_postfix(loss=losses[-1])
        written.info("loss %s", losses[-1])
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": optimizer})
    run(engine, DataLoader(pairs(), 4, shuffle=True))
    return model


class Progress:
    """Counts for a line on the screen."""

    def __init__(self):
        self.batches, self.lines = 0, []

    def show(self, state):
        self.batches += 1
        self.lines.append(f"{self.batches}: {float(state.metrics['loss']):.3f}")


def progress_object(run):
    model, engine = classifier()
    engine.on(Events.ITERATION_COMPLETED)(Progress().show)
    run(engine, DataLoader(pairs(), 4, shuffle=True))
    return model


def target_network(run):
    online = nn.Linear(4, 2)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = adam(online)
    update = Update(optimizer)

    def step(state, batch):
        with torch.no_grad():
            goal = batch.sum(1) + 0.9 * target(batch).amax(1)
        update(state, mse_loss(online(batch).amax(1), goal))
        if state.iteration % 5 == 0:
            target.load_state_dict(online.state_dict())

    objects = {"online": online, "target": target, "optimizer": optimizer}
    run(Engine(step, update, objects=objects), [torch.randn(5, 4) for _ in range(6)])
    return nn.ModuleList([online, target])


class Attends(nn.Module):
    """Keeps its last map of attention, for a plot, and counts its calls."""

    def __init__(self):
        super().__init__()
        self.query, self.out, self.attention, self.calls = nn.Linear(4, 4), nn.Linear(4, 3), None, 0

    def forward(self, x):
        self.attention = (self.query(x) @ x.T).softmax(-1)
        self.calls += 1
        return self.out(self.attention @ x)


def last_attention_of_a_model(run):
    model, engine = classifier(model=Attends())
    run(engine, DataLoader(pairs(), 4, shuffle=True))
    return model


class Cached(Dataset):
    """Reads a sample once, from a file that is opened when the first one is read."""

    def __init__(self, path):
        self.path, self.cache, self.file = path, {}, None
        self.path.write_text("\n".join(map(str, range(24))))

    def __len__(self):
        return 24

    def __getitem__(self, index):
        if self.file is None:
            self.file = self.path.open()
        if index not in self.cache:
            self.file.seek(0)
            number = float(self.file.read().split()[index])
            self.cache[index] = torch.tensor([number / 24] * 4), index % 3
        return self.cache[index]


def cache_and_open_file_of_a_data_set(run):
    run.path.mkdir(parents=True, exist_ok=True)
    model, engine = classifier()
    samples = Cached(run.path / "numbers.txt")
    run(engine, DataLoader(samples, 4, shuffle=True))
    samples.file.close()
    return model


def metrics_of_torchmetrics(run):
    accuracy = MulticlassAccuracy(3)
    metrics = Metrics({"accuracy": accuracy}, select=lambda out: (out.prediction, out.target))
    model, engine = classifier(metrics, Validate(DataLoader(pairs(), 8)))
    run(engine, DataLoader(pairs(), 4, shuffle=True))
    return model


def generator_of_the_sampler(run):
    model, engine = classifier()
    generator = torch.Generator().manual_seed(5)
    run(engine, DataLoader(pairs(), 4, shuffle=True, generator=generator))
    return model


class Numbers(IterableDataset):
    """Gives the same samples in each pass."""

    def __iter__(self):
        generator = torch.Generator().manual_seed(3)
        for number in range(24):
            yield torch.randn(4, generator=generator), number % 3


def iterable_data_set(run):
    model, engine = classifier()
    run(engine, DataLoader(Numbers(), 4))
    return model


def batches_that_are_generated(run):
    class Batches:
        def __iter__(self):
            for number in range(6):
                generator = torch.Generator().manual_seed(number)
                yield torch.randn(4, 4, generator=generator), torch.arange(4) % 3

    model, engine = classifier()
    run(engine, Batches())
    return model


def loader_of_ours_and_accumulation(run):
    model, engine = classifier(accumulate=2)
    run(engine, loader(pairs(), 4, training=True))
    return model


def noise_from_the_global_generator(run):
    model = nn.Linear(4, 4)
    optimizer = adam(model)
    update = Update(optimizer)

    def step(state, batch):
        update(state, mse_loss(model(batch + 0.1 * torch.randn_like(batch)), batch))

    engine = Engine(step, update, objects={"model": model, "optimizer": optimizer})
    run(engine, [torch.randn(5, 4) for _ in range(6)])
    return model


def running_mean_that_is_remembered(run):
    model = nn.Linear(4, 1)
    optimizer = adam(model)
    update = Update(optimizer)

    def step(state, batch):
        baseline = state.recall(step, lambda: {"mean": 0.0})
        loss = (model(batch) - baseline["mean"]).square().mean()
        update(state, loss)
        baseline["mean"] = 0.9 * baseline["mean"] + 0.1 * float(loss.detach())

    engine = Engine(step, update, objects={"model": model, "optimizer": optimizer})
    run(engine, [torch.randn(5, 4) for _ in range(6)])
    return model


def norms_two_groups_and_a_hook(run):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    seen = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output.shape))
    groups = [{"params": model[:2].parameters(), "lr": 0.01}, {"params": model[2].parameters()}]
    optimizer = torch.optim.AdamW(groups, 0.1)
    run(supervised(model, optimizer, cross_entropy), DataLoader(pairs(), 4, shuffle=True))
    return model


def best_value_by_hand(run):
    model, engine = classifier(Validate(DataLoader(pairs(), 8)))
    lowest, history = {"loss": float("inf")}, {"val/loss": []}

    @engine.on(Events.EPOCH_COMPLETED)
    def look(state):
        history["val/loss"].append(float(state.metrics["val/loss"]))
        lowest["loss"] = min(lowest["loss"], history["val/loss"][-1])

    run(engine, DataLoader(pairs(), 4, shuffle=True))
    return model


def loss_with_parameters(run):
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(()))

        def forward(self, prediction, target):
            return cross_entropy(prediction, target) * (-self.scale).exp() + self.scale

    model, loss_fn = network(), Weighted()
    optimizer = torch.optim.Adam([*model.parameters(), *loss_fn.parameters()], 0.01)
    engine = supervised(model, optimizer, loss_fn)
    engine.objects["loss"] = loss_fn
    run(engine, DataLoader(pairs(), 4, shuffle=True))
    return nn.ModuleList([model, loss_fn])


SCRIPTS = [
    usual_handlers,
    schedule_by_hand,
    torch_scheduler,
    frozen_by_a_handler,
    frozen_before_the_run,
    counters_that_only_report,
    progress_object,
    target_network,
    last_attention_of_a_model,
    cache_and_open_file_of_a_data_set,
    metrics_of_torchmetrics,
    generator_of_the_sampler,
    iterable_data_set,
    batches_that_are_generated,
    loader_of_ours_and_accumulation,
    noise_from_the_global_generator,
    running_mean_that_is_remembered,
    norms_two_groups_and_a_hook,
    best_value_by_hand,
    loss_with_parameters,
]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(each, id=each.__name__, marks=[pytest.mark.slow] * (at >= 6))
        for at, each in enumerate(SCRIPTS)
    ],
)
def test_nothing_is_said_of_a_right_script(script, tmp_path, caplog):
    """A Python warning is an error in all tests."""
    with caplog.at_level(logging.WARNING, "camshaft"):
        torch.manual_seed(0)
        whole = script(Run(tmp_path / "whole")).state_dict()
        assert caplog.messages == []
        for stops in (True, False):
            torch.manual_seed(0)
            resumed = script(Run(tmp_path / "cut", stops)).state_dict()
            assert caplog.messages == []
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
