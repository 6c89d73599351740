"""What a run changes of what its script made is a part of the run: saved, put back, or told of."""

import gc
import sys
import warnings
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import count, cycle
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torchmetrics
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.engine.changes.reached import called_by, is_only_filled
from camshaft.handlers import Checkpoint, Freeze, LRSchedule, Metrics, latest

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
TEMPERATURE = 1.0


class Rows(Dataset):
    def __init__(self):
        self.level, self.noise, self.pool = 0, {"scale": 1.0}, [*range(48)]

    def __len__(self):
        return len(self.pool)

    def __getitem__(self, index):
        return X[index] * (1 + 0.1 * self.level) * self.noise["scale"], X[index, :1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.1), nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 1)
        self.tau, self.center, self.cache = 1.0, torch.zeros(1), None
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, x):
        out = self.head(self.body(x))
        return (out - self.center - self.seen) / self.tau / TEMPERATURE


class Counted(torch.optim.SGD):
    count = 0

    def step(self, closure=None):
        self.count += 1
        for group in self.param_groups:
            group["lr"] = 0.1 / self.count
        return super().step(closure)


@dataclass(frozen=True)
class Settings:
    weight: list = field(default_factory=lambda: [1.0])


class Slotted:
    __slots__ = ("gain",)


class Globals:
    gain = 1.0


def temper(to):
    global TEMPERATURE  # noqa: PLW0603  as scripts do
    TEMPERATURE = to


CHANGES = {
    "unfreeze": lambda s: s.model.body.requires_grad_(True),
    "freeze": lambda s: s.model.head.requires_grad_(False),
    "eval": lambda s: s.model.body[2].eval(),
    "dropout": lambda s: setattr(s.model.body[1], "p", 0.5),
    "momentum": lambda s: setattr(s.model.body[2], "momentum", 0.01),
    "loss": lambda s: setattr(s.loss, "delta", 0.1),
    "level": lambda s: setattr(s.data, "level", 2),
    "in a dict": lambda s: s.data.noise.update(scale=3.0),
    "new name": lambda s: setattr(s.data, "level", 1) or vars(s.data).update(extra=2),
    "pool": lambda s: s.data.pool.extend(range(48, 60)),
    "indices": lambda s: s.subset.indices.reverse(),
    "weights": lambda s: setattr(s.sampler, "weights", torch.arange(60.0)),
    "weights in place": lambda s: s.sampler.weights.mul_(torch.arange(60.0)),
    "decay": lambda s: s.optimizer.param_groups[0].update(weight_decay=0.3),
    "accumulate": lambda s: setattr(s.update, "accumulate", 2),
    "float": lambda s: setattr(s.model, "tau", 0.5),
    "tensor": lambda s: setattr(s.model, "center", s.model.center + 0.3),
    "buffer": lambda s: s.model.seen.add_(0.3),
    "global": lambda s: temper(0.5),
    "frozen dataclass": lambda s: s.settings.weight.append(0.5),
    "namespace": lambda s: setattr(s.space, "gain", 2.0),
    "slot": lambda s: setattr(s.slotted, "gain", 2.0),
    "class": lambda s: setattr(Globals, "gain", 2.0),
    "array": lambda s: s.array.__imul__(2),
    "deque": lambda s: s.queue.append(2.0),
}


def script(change, directory, when, **limits):
    """One start of a script whose function makes a change at a moment; its weights at the end."""
    temper(1.0)
    Globals.gain = 1.0
    torch.manual_seed(0)
    s = SimpleNamespace(model=Net(), loss=nn.HuberLoss(delta=1.0), data=Rows())
    s.subset = Subset(s.data, [*range(40)])
    s.settings, s.space, s.slotted = Settings(), SimpleNamespace(gain=1.0), Slotted()
    s.slotted.gain, s.array, s.queue = 1.0, np.ones(2), deque([1.0], maxlen=1)
    if change == "unfreeze":
        s.model.body.requires_grad_(False)
    s.optimizer = torch.optim.Adam(s.model.parameters(), lr=0.01)
    s.update = Update(s.optimizer)
    s.sampler = WeightedRandomSampler(torch.ones(60), 48) if "weights" in change else None

    def loss(prediction, target):
        gain = s.space.gain * s.slotted.gain * Globals.gain * float(s.array.mean()) * s.queue[0]
        return s.loss(prediction * s.settings.weight[-1], target) * gain

    engine = supervised(s.model, s.update, loss)
    engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=5), resume=True))
    engine.on(when)(lambda state: CHANGES[change](s))
    data = s.subset if change == "indices" else s.data
    loader = DataLoader(data, 4, shuffle=s.sampler is None, sampler=s.sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = engine.run(loader, max_epochs=4, **limits)
    return state.iteration, [each.tolist() for each in s.model.state_dict().values()]


@pytest.mark.quick(change=6)
@pytest.mark.parametrize("change", CHANGES)
def test_a_setting_that_a_function_changes_once_is_part_of_the_run(tmp_path, change):
    when = Events.EPOCH_STARTED(at=2)
    whole = script(change, tmp_path / "whole", when)
    script(change, tmp_path / "left", when, max_iterations=28)
    assert script(change, tmp_path / "left", when) == whole


# Torch's sampler reads the length of the data anew in the middle of a pass.
@pytest.mark.slow
@pytest.mark.parametrize("change", sorted(CHANGES.keys() - {"pool"}))
@pytest.mark.parametrize("left", [21, 38])
def test_also_in_the_middle_of_an_epoch(tmp_path, change, left):
    when = Events.ITERATION_COMPLETED(at=17)
    whole = script(change, tmp_path / "whole", when)
    script(change, tmp_path / "left", when, max_iterations=left)
    assert script(change, tmp_path / "left", when) == whole


def test_what_the_script_says_anew_and_the_run_did_not_change_is_the_scripts(tmp_path):
    def run(rate, epochs):
        model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(rate), nn.Dropout(0.1))
        engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
        engine.add(Checkpoint(tmp_path, resume=True))

        @engine.on(Events.EPOCH_STARTED(at=1))
        def change(state):
            model[2].p = 0.7

        engine.run([(torch.ones(2, 2), torch.ones(2, 2))], max_epochs=epochs)
        return model[1].p, model[2].p

    assert run(0.2, 1) == (0.2, 0.7)
    assert run(0.4, 2) == (0.4, 0.7)


def test_a_value_that_the_start_of_each_run_sets_goes_on_from_the_save(tmp_path):
    model = nn.Linear(2, 1)

    def run(epochs):
        holder = SimpleNamespace(rate=0.0)
        engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
        engine.add(Checkpoint(tmp_path, resume=True))
        engine.on(Events.STARTED)(lambda state: setattr(holder, "rate", 1.0))
        engine.on(Events.EPOCH_COMPLETED)(lambda state: setattr(holder, "rate", holder.rate / 2))
        engine.run([(torch.ones(2, 2), torch.ones(2, 1))], max_epochs=epochs)
        return holder.rate

    assert [run(1), run(2), run(2)] == [0.5, 0.25, 0.25]  # the last one has nothing to do


def test_what_the_start_of_each_process_sets_to_another_value_stays(tmp_path):
    model = nn.Linear(2, 1)

    def run(process):
        holder = SimpleNamespace(process=0)
        engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
        engine.add(Checkpoint(tmp_path, resume=True))
        engine.on(Events.STARTED)(lambda state: setattr(holder, "process", process))
        engine.run([(torch.ones(2, 2), torch.ones(2, 1))], max_epochs=process)
        return holder.process

    assert [run(1), run(2), run(3)] == [1, 2, 3]


def test_an_object_with_a_counter_and_an_average_with_its_model_go_on(tmp_path):
    class WarmUp:
        def __init__(self, optimizer):
            self.optimizer, self.count = optimizer, 0

        def step(self):
            self.count += 1
            self.optimizer.param_groups[0]["lr"] = 0.01 * self.count

    class Average:
        def __init__(self, model):
            self.model = model
            self.shadow = {name: each.clone() for name, each in model.state_dict().items()}

        def update(self):
            for name, each in self.model.state_dict().items():
                self.shadow[name].lerp_(each, 0.1)

        def state_dict(self):
            return dict(self.shadow)

        def load_state_dict(self, saved):
            self.shadow = dict(saved)

    def run(directory, epochs):
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        engine = supervised(model, optimizer, nn.MSELoss())
        warm, average = WarmUp(optimizer), Average(model)
        engine.add(Checkpoint(directory, resume=True))
        engine.on(Events.STEP_COMPLETED)(lambda state: (warm.step(), average.update()))
        engine.run([(torch.ones(2, 2), torch.ones(2, 1))] * 3, max_epochs=epochs)
        return warm.count, model.weight.tolist(), average.shadow["weight"].tolist()

    whole = run(tmp_path / "whole", 3)
    run(tmp_path / "left", 2)
    assert run(tmp_path / "left", 3) == whole


def test_an_attribute_of_an_optimizer_that_its_steps_change_goes_on(tmp_path):
    def run(directory, epochs):
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        engine = supervised(model, Counted(model.parameters(), 0.1), nn.MSELoss())
        engine.add(Checkpoint(directory, resume=True))
        engine.run([(torch.ones(2, 2), torch.ones(2, 1))] * 3, max_epochs=epochs)
        return model.weight.tolist()

    whole = run(tmp_path / "whole", 3)
    run(tmp_path / "left", 2)
    assert run(tmp_path / "left", 3) == whole


def window():
    """Its tensors are one object until they are written."""
    return torchmetrics.wrappers.Running(torchmetrics.MeanMetric(), window=2)


class OfFeatures(torchmetrics.MeanMetric):
    def __init__(self):
        super().__init__()
        self.network = nn.Linear(1, 1).requires_grad_(False)


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize(
    "kind", [torchmetrics.MeanMetric, torchmetrics.CatMetric, window, OfFeatures]
)
def test_a_metric_that_is_updated_by_hand_goes_on_within_its_epoch(tmp_path, kind, is_named):
    def run(directory, **limits):
        metric, found = kind(), []

        def step(state, batch):
            metric.update(batch)

        engine = Engine(step, Checkpoint(directory, resume=True))
        engine.objects.update({"metric": metric} if is_named else {})

        @engine.on(Events.EPOCH_COMPLETED)
        def compute(state):
            found.append(metric.compute().tolist())
            metric.reset()

        engine.run([1.0, 2.0, 6.0], max_epochs=3, **limits)
        return found

    whole = run(tmp_path / "whole")
    for left in (1, 4, 5, 6):
        first = run(tmp_path / str(left), max_iterations=left)
        assert first + run(tmp_path / str(left)) == whole


class Counts:
    """Counters of functions that a step calls without a name of its own for them."""

    def __init__(self):
        self.forward = self.static = self.pulled = self.stepped = self.decorated = 0


def counting(counts):
    """An engine whose model, loss, hooks and decorated functions count their calls."""

    class Pull(torch.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            Pull.calls += 1
            return x / (1 + Pull.calls)

        @staticmethod
        def backward(ctx, gradient):
            counts.static += 1
            return gradient / (1 + counts.static)

    class Model(nn.Linear):
        calls = 0

        def forward(self, x):
            counts.forward += 1
            Model.calls += 1
            return Pull.apply(super().forward(x)) / (1 + counts.forward / Model.calls)

    class Loss(nn.MSELoss):
        calls = 0

        def forward(self, prediction, target):
            type(self).calls += 1
            return super().forward(prediction, target) / self.calls

    def pulled(gradient):
        counts.pulled += 1
        return gradient / counts.pulled

    @torch.no_grad()
    def decorated():
        counts.decorated += 1
        model[0].weight.mul_(1 - 0.1 / counts.decorated)

    def stepped(optimizer, *_):
        counts.stepped += 1
        optimizer.param_groups[0]["lr"] = 0.1 / counts.stepped

    torch.manual_seed(0)
    model = nn.Sequential(Model(2, 1))
    model[0].weight.register_hook(pulled)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.register_step_pre_hook(stepped)
    engine = supervised(model, optimizer, Loss())
    engine.on(Events.STEP_COMPLETED)(lambda state: decorated())
    return engine, model


def test_what_modules_hooks_and_decorated_functions_count_goes_on(tmp_path):
    def run(directory, **limits):
        engine, model = counting(counts := Counts())
        engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=5), resume=True))
        engine.run([(torch.ones(2, 2), torch.ones(2, 1))] * 20, max_epochs=1, **limits)
        return vars(counts), model[0].weight.tolist(), type(model[0]).calls

    whole = run(tmp_path / "whole")
    assert set(whole[0].values()) == {20}
    run(tmp_path / "left", max_iterations=12)
    assert run(tmp_path / "left") == whole


class NoLength(tuple):
    def __len__(self):
        raise NotImplementedError


def test_a_weight_that_a_hook_computes_of_a_parameter_is_not_written_over_it(tmp_path):
    def run(directory, epochs):
        torch.manual_seed(0)
        model = nn.utils.spectral_norm(nn.Linear(2, 1))
        model.shape = NoLength([2, 1])
        engine = supervised(model, torch.optim.SGD(model.parameters(), 0.01), nn.MSELoss())
        engine.add(Checkpoint(directory, resume=True))
        engine.run([(torch.ones(2, 2), torch.ones(2, 1))] * 3, max_epochs=epochs)
        return [each.tolist() for each in model.state_dict().values()]

    whole = run(tmp_path / "whole", 3)
    run(tmp_path / "left", 2)
    assert run(tmp_path / "left", 3) == whole


class Sac(EventEnum):
    TEMPERED = "tempered"


def test_a_bare_tensor_with_an_optimizer_goes_on_and_the_target_beside_it_is_not_told_of(tmp_path):
    def run(directory, epochs):
        torch.manual_seed(0)
        q, target = nn.Linear(2, 1), nn.Linear(2, 1)
        log_alpha = torch.zeros(1, requires_grad=True)
        tempering = torch.optim.Adam([log_alpha], 0.1)
        update = Update(torch.optim.SGD(q.parameters(), 0.1))
        temper = Update(tempering, event=Sac.TEMPERED)

        def step(state, batch):
            update(state, (q(batch) * log_alpha.exp().detach()).square().sum())
            temper(state, (log_alpha.exp() - 2).square().sum())
            for ours, theirs in zip(q.parameters(), target.parameters(), strict=True):
                theirs.data.lerp_(ours.data, 0.1)

        objects = {"q": q, "target": target, "optimizer": update.optimizer, "tempering": tempering}
        engine = Engine(step, update, temper, objects=objects)
        engine.add(Checkpoint(directory, resume=True))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            engine.run([torch.ones(1, 2)] * 3, max_epochs=epochs)
        return log_alpha.item(), q.weight.tolist()

    whole = run(tmp_path / "whole", 3)
    run(tmp_path / "left", 2)
    assert run(tmp_path / "left", 3) == whole


def changed(change, directory, **objects):
    """The warnings of a run in which a function makes a change of a model or a holder once."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    holder = SimpleNamespace(inner=None, optimizer=optimizer, **objects)
    engine = supervised(model, optimizer, nn.MSELoss())
    engine.add(Checkpoint(directory))
    engine.on(Events.EPOCH_STARTED(at=2))(lambda state: change(model, holder))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine.run([(torch.ones(2, 3), torch.ones(2, 1))], max_epochs=4)
    return [str(each.message) for each in caught]


def hook(module, given, out):
    return out * 0.5


class Boxed:
    def __init__(self, hidden):
        self.hidden = hidden


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda model, holder: model.head.register_forward_hook(hook), "model.head (a hook more)"),
        (lambda m, _: m.body.add_module("3", nn.Tanh()), "model.body (4 modules instead of 3)"),
        (lambda m, _: setattr(m.body, "1", nn.Tanh()), "model.body.1 (now another Tanh)"),
        (lambda model, holder: setattr(holder, "net", nn.Linear(1, 1)), "net (now another Linear)"),
        (lambda _, holder: setattr(holder, "function", lambda: 0), "(now another function)"),
        (lambda model, holder: setattr(holder, "big", torch.ones(2**23)), "(33,554,432 bytes)"),
        (lambda model, holder: setattr(holder, "rows", [0.5] * 20_000), "rows (20,000 values)"),
        (
            lambda model, holder: setattr(holder, "rows", dict.fromkeys(range(20_000), 0.5)),
            "values; of a cache, nothing is lost)",
        ),
        (lambda m, _: m.head.weight.register_hook(lambda g: g), "model.head.weight (a hook more)"),
        (
            lambda _, holder: holder.optimizer.register_step_post_hook(lambda *_: None),
            "(a hook more)",
        ),
        (lambda _, holder: setattr(holder, "part", partial(hook, 2)), "part (now another partial)"),
        (lambda _, holder: setattr(holder, "activation", torch.sigmoid), "(now another builtin_"),
        (lambda _, holder: setattr(holder, "dtype", torch.bfloat16), "dtype (now another dtype)"),
        (lambda _, holder: setattr(holder, "sparse", holder.sparse * 2), "(now another Tensor)"),
        (lambda _, holder: setattr(holder, "inner", Boxed(torch.ones(1))), "inner (with Boxed: "),
    ],
)
def test_what_cannot_be_put_back_is_told_at_the_save_once_and_by_name(tmp_path, change, what):
    start = {
        "net": nn.Linear(1, 1),
        "function": test_a_value_that_the_start_of_each_run_sets_goes_on_from_the_save,
        "part": partial(hook, 1),
        "activation": torch.tanh,
        "dtype": torch.float32,
        "sparse": torch.eye(2).to_sparse(),
    }
    told = [each for each in changed(change, tmp_path, **start) if "the run has changed" in each]
    assert len(told) == 1
    assert what in told[0]
    assert "Events.STARTED" in told[0]


def test_a_handle_an_iterator_or_a_library_s_object_that_comes_is_not_told_of(tmp_path):
    def change(model, holder):
        holder.file = files.append((tmp_path / "log").open("w")) or files[0]
        holder.rows = iter([1, 2])
        holder.lock = __import__("threading").Lock()
        holder.loader = DataLoader([1, 2])  # of an evaluation
        model.cache = torch.ones(2**23, requires_grad=True) * 2  # of one batch: it has a graph

    files = []
    assert (
        changed(change, tmp_path / "run", file=None, rows=None, lock=None, loader=DataLoader([1]))
        == []
    )
    files[0].close()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda model, optimizer: nn.init.ones_(model[1].weight), "'model'"),
        (lambda model, optimizer: model[0].reset_running_stats(), "'model'"),
        (lambda model, optimizer: optimizer.state.clear(), "'optimizer'"),
    ],
    ids=["weights", "buffers", "moments"],
)
@pytest.mark.parametrize("is_guarded", [False, True])
def test_weights_that_a_function_of_started_fills_again_are_told_of(
    tmp_path, change, what, is_guarded
):
    def run(epochs):
        model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        engine = supervised(model, optimizer, nn.MSELoss())
        engine.add(Checkpoint(tmp_path, resume=True))

        @engine.on(Events.STARTED)
        def begin(state):
            model.to(torch.float32)
            if state.is_new or not is_guarded:
                change(model, optimizer)

        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            engine.run([(torch.eye(2), torch.tensor([[1.0], [2.0]]))], max_epochs=epochs)
        return [str(each.message) for each in told]

    assert run(1) == []
    told = run(2)
    assert len(told) == (not is_guarded)
    assert all(f"STARTED has changed {what}" in each and "state.is_new" in each for each in told)


class Endless:
    def __init__(self, data):
        self.data, self.drawn = data, None

    def draw(self):
        self.drawn = self.drawn or iter(self.data)
        return next(self.drawn)


class Place(Endless):
    """One that a checkpoint can hold."""

    count = 0

    def draw(self):
        self.count += 1
        return super().draw()

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        for _ in range(state["count"]):
            self.draw()


def drawing(draw, directory, **objects):
    """What a run says whose step draws from something else than its data."""

    def step(state, batch):
        draw()

    engine = Engine(step, Checkpoint(directory, when=Events.ITERATION_COMPLETED), objects=objects)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        engine.run([1] * 3, max_epochs=2)
    return [str(each.message) for each in told]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: iter(DataLoader(X, 3)), "drawn (_SingleProcessDataLoaderIter)"),
        (lambda: cycle([1, 2]), "drawn (cycle)"),
        (lambda: (each for each in count()), "drawn (generator)"),
    ],
)
def test_an_iterator_from_which_a_step_draws_is_told_once(tmp_path, make, name):
    drawn = make()
    (told,) = drawing(lambda: next(drawn), tmp_path)
    assert f"the run draws from {name}, and no checkpoint holds" in told
    assert "docs/guides/data.md#several-loaders" in told


def test_so_is_one_that_is_replaced_and_one_that_an_object_makes_when_it_needs_it(tmp_path):
    loader = DataLoader(X, 20)
    drawn, endless = iter(loader), Endless(DataLoader(X, 3))

    def draw():
        nonlocal drawn
        if next(drawn, None) is None:
            drawn = iter(loader)

    (told,) = drawing(draw, tmp_path / "replaced")
    assert "drawn (_Single" in told
    (told,) = drawing(endless.draw, tmp_path / "made")
    assert "self.drawn (_Single" in told
    several = [iter(DataLoader(X, 3)), iter(loader)]
    (told,) = drawing(lambda: [*map(next, several)], tmp_path / "several")
    assert "several[0] (_Single" in told


def test_a_pair_with_an_array_goes_on(tmp_path):
    def run(epochs):
        pair = np.zeros(2), 3

        def step(state, batch):
            nonlocal pair
            pair = pair[0] + batch, pair[1] + 1

        Engine(step, Checkpoint(tmp_path, resume=True)).run([1, 2], max_epochs=epochs)
        return pair[0].tolist(), pair[1]

    assert (run(1), run(3)) == (([3.0, 3.0], 5), ([9.0, 9.0], 9))


def test_a_value_in_a_list_with_other_things_goes_on(tmp_path):
    def run(directory, epochs):
        box = [0, nn.Linear(2, 1), None]
        engine = Engine(lambda state, batch: box.__setitem__(0, box[0] + batch))
        engine.add(Checkpoint(directory, resume=True))
        engine.run([1, 2], max_epochs=epochs)
        return box[0]

    assert (run(tmp_path, 2), run(tmp_path, 5)) == (6, 15)


def test_an_iterator_is_not_told_of_if_it_is_saved_at_its_end_or_left_alone(tmp_path):
    saved, rows = Place(DataLoader(X, 3)), DataLoader(X, 20)
    unused = (each for each in X)
    files, drawn = (tmp_path / "log").open("w"), None

    def draw():
        nonlocal drawn
        drawn = iter(rows)
        files.write(str([saved.draw(), *drawn]))
        return unused if saved is None else None

    assert drawing(draw, tmp_path / "run", saved=saved) == []
    files.close()


class Level(Dataset):
    level = 1

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index * self.level


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("persistent", [False, True])
def test_a_change_that_persistent_workers_do_not_see_is_told(tmp_path, persistent):
    data, seen = Level(), list[int]()
    loader = DataLoader(data, 4, num_workers=1, persistent_workers=persistent)
    engine = Engine(lambda state, batch: seen.append(int(batch.sum())), Checkpoint(tmp_path))
    engine.on(Events.EPOCH_COMPLETED(at=1))(lambda state: setattr(data, "level", 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine.run(loader, max_epochs=2)
    assert seen == ([6, 22, 6, 22] if persistent else [6, 22, 12, 44])
    told = [each for each in caught if "data.dataset.level (in this" in str(each.message)]
    assert len(told) == persistent


class Going:
    """A sampler that goes on where it was left, and begins anew at its end."""

    def __init__(self):
        self.at = 0

    def __len__(self):
        return 12

    def __iter__(self):
        while self.at < 12:
            self.at += 1
            yield self.at - 1
        self.at = 0


def test_the_question_how_a_pass_begins_changes_nothing_in_the_data(tmp_path):
    def run(directory, epochs):
        seen = []
        engine = Engine(lambda state, batch: seen.append(batch.tolist()))
        engine.add(Checkpoint(directory, resume=True))
        engine.run(DataLoader(range(12), 4, sampler=Going()), max_epochs=epochs)
        return seen

    whole = run(tmp_path / "whole", 3)
    assert run(tmp_path / "left", 1) + run(tmp_path / "left", 3) == whole


def test_a_list_to_which_functions_only_append_is_a_record_of_its_process(tmp_path):
    model = nn.Linear(2, 1)

    def run(epochs):
        losses, rates, outputs = [], [0.1], []
        by_epoch, sums = {}, {"all": []}
        engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
        engine.add(Checkpoint(tmp_path, resume=True))

        @engine.on(Events.EPOCH_COMPLETED)
        def note(state):
            losses.append(float(state.metrics["loss"]))
            outputs.append(state.output.prediction)
            by_epoch.setdefault(state.epoch, []).append(1)
            sums["all"].append(1)
            rates.append(rates[-1] / 2)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            engine.run([(torch.ones(2, 2), torch.ones(2, 1))], max_epochs=epochs)
        assert [*by_epoch.values()] == [[1]] * len(losses)
        assert sums == {"all": [1] * len(losses)}
        return len(losses), len(outputs), rates

    assert run(2) == (2, 2, [0.1, 0.05, 0.025])
    assert run(3) == (1, 1, [0.1, 0.05, 0.025, 0.0125])


def test_what_one_function_fills_and_a_loss_a_schedule_or_a_metric_reads_goes_on(tmp_path):
    def run(directory, **limits):
        torch.manual_seed(0)
        penalty, scale, rate, gain = {}, [1.0], {}, {}
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def loss(prediction, target):
            return (prediction - target).square().mean() + penalty.get("mean", 0) * prediction.sum()

        engine = supervised(
            model, optimizer, loss, prepare_batch=lambda batch: (scale[-1] * batch,) * 2
        )
        schedule = LambdaLR(optimizer, lambda step: rate.get("factor", 1.0))
        measure = {"gain": lambda output: gain.get("factor", 1.0)}
        engine.add(LRSchedule(schedule), Metrics(measure, select=lambda output: output, weight=1))
        engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=3), resume=True))

        @engine.on(Events.ITERATION_COMPLETED(at=5))
        def change(state):
            penalty["mean"], rate["factor"], gain["factor"] = 0.2, 0.5, 2.0
            scale.append(2.0)

        state = engine.run([torch.ones(3, 2)] * 10, max_epochs=1, **limits)
        return model.weight.tolist(), limits or float(state.metrics["gain"])

    whole = run(tmp_path / "whole")
    run(tmp_path / "left", max_iterations=7)
    assert run(tmp_path / "left") == whole


def test_things_of_other_libraries_that_answer_in_ways_of_their_own_are_passed_over(tmp_path):
    class Missing:  # as MONAI has in the place of a library that is not installed
        def __getattr__(self, name):
            raise RuntimeError("install it first")

    class Symbols:  # as llvmlite, which numba uses, has for a library of C
        __slots__ = ()

        def __getattr__(self, name):
            return lambda: name

    class Memoized:  # as SQLAlchemy, which a trial of Optuna leads to, computes its slots
        __slots__ = ("ref",)

        def __getattr__(self, name):
            raise TypeError("cannot create weak reference")

    class Functional:  # as the optimizers of torchopt
        def __init__(self, tensors):
            self.param_groups = [tuple(tensors)]

        def step(self, loss):
            (gradient,) = torch.autograd.grad(loss, self.param_groups[0])
            with torch.no_grad():
                self.param_groups[0][0].sub_(gradient)

    model, absent, symbols = nn.Linear(2, 1, bias=False), Missing(), Symbols()
    memoized = Memoized()
    optimizer = Functional(model.parameters())

    def step(state, batch):
        if type(absent) is Missing and symbols.add() == "add" and memoized is not None:
            optimizer.step(model(batch).mean())

    engine = Engine(step, Checkpoint(tmp_path, resume=True), objects={"model": model})
    assert engine.run([torch.ones(2, 2)] * 2, max_epochs=2).iteration == 4


def test_a_variable_that_one_operation_reads_beside_another_is_read():
    def step(rows, other):
        rows.append(1)
        return other, rows  # from Python 3.13 on, one operation

    assert not is_only_filled(["rows"], called_by([step]))


class Past:
    """Reads a list that a script fills under another name."""

    def __init__(self, rows):
        self.rows = rows

    def count(self):
        return len(self.rows)


@pytest.mark.parametrize("filled_first", [True, False])
def test_a_list_that_is_filled_under_one_name_and_read_under_another_is_saved(
    tmp_path, filled_first
):
    def train(directory, ends):
        rows, counts = [], []
        past = Past(rows)

        def fill(state):
            rows.append(state.iteration)

        def read(state):
            counts.append(past.count())

        engine = Engine(lambda state, batch: None, Checkpoint(directory, resume=True))
        for function in (fill, read) if filled_first else (read, fill):
            engine.on(Events.ITERATION_COMPLETED)(function)
        engine.on(Events.ITERATION_COMPLETED(at=ends))(lambda state: state.interrupt("away"))
        engine.run(range(9), max_epochs=1)
        return counts

    whole = train(tmp_path / "whole", 99)
    assert train(tmp_path / "parts", 4) + train(tmp_path / "parts", 99) == whole


def test_a_run_that_is_carried_on_in_the_process_saves_what_its_first_part_has_changed(tmp_path):
    def run(*parts):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))
        engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
        engine.add(Checkpoint(tmp_path / str(len(parts)), resume=True))

        @engine.on(Events.EPOCH_STARTED(at=2))
        def change(state):
            model[1].p = 0.5

        state, data = None, [(torch.ones(2, 2), torch.ones(2, 2))] * 3
        for epochs in parts:
            state = engine.run(data, max_epochs=epochs, state=state)
        return model[1].p

    assert run(2, 3) == 0.5
    assert run(4, 4) == 0.5  # a new process, which goes on from epoch 3


def test_what_freeze_does_stays_its_own_also_where_the_script_changes_it(tmp_path):
    def run(epochs, until):
        model = Net()
        groups = model.parameters()
        engine = supervised(model, torch.optim.SGD(groups, 0.1), nn.MSELoss())
        engine.add(Freeze("body.*", until=Events.EPOCH_STARTED(at=until)))
        engine.add(Checkpoint(tmp_path, resume=True))
        trains = []
        engine.on(Events.EPOCH_COMPLETED)(
            lambda state: trains.append(model.body[0].weight.requires_grad)
        )
        engine.run([(torch.ones(2, 3), torch.ones(2, 1))], max_epochs=epochs)
        return trains

    assert run(2, until=3) == [False, False]
    assert run(4, until=3) == [True, True]


def test_another_epoch_length_at_a_resume_is_told(tmp_path, caplog):
    model = nn.Linear(2, 1)

    def run(epochs, **limits):
        engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
        engine.add(Checkpoint(tmp_path, resume=True))
        engine.run([(torch.ones(2, 2), torch.ones(2, 1))] * 6, max_epochs=epochs, **limits)

    run(1)
    run(2)
    assert "epoch_length" not in caplog.text
    run(3, epoch_length=4)
    assert "epoch_length: None in the checkpoint -> 4 in the script" in caplog.text


def test_the_changes_of_a_checkpoint_are_plain_values(tmp_path):
    script("dropout", tmp_path, Events.EPOCH_STARTED(at=2))
    newest = max(tmp_path.glob("*/rank-00000.json")).read_text()
    assert '"changes": {"values": {"model.body.1.p": 0.5}' in newest


def test_a_save_of_a_thousand_modules_makes_hardly_a_call_for_them(tmp_path):
    calls = StringIO()  # nothing that is looked at
    model = nn.Sequential(*(nn.Dropout(0.1) for _ in range(1000)), nn.Linear(2, 1))
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
    engine.add(Checkpoint(tmp_path))

    @engine.on(Events.EPOCH_COMPLETED)
    def look(state):
        gc.disable()  # what a collection calls is nobody's doing here
        sys.setprofile(lambda frame, event, argument: calls.write("."))
        state.control.noted.look()
        sys.setprofile(None)
        gc.enable()

    engine.run([(torch.ones(2, 2), torch.ones(2, 1))], max_epochs=1)
    assert len(calls.getvalue()) < 100


def momentum_by_hand(table, key, directory, until=None):
    """A step that keeps the momentum of each weight in a table of its own; the weights after it."""
    torch.manual_seed(0)
    model, limits = Net(), {"max_epochs": 2, "max_iterations": until}
    kept = {
        "filled": lambda: {key(each): torch.zeros_like(each) for each in model.parameters()},
        "empty": dict,
        "by default": dict,
    }[table]()

    def step(state, batch):
        nn.functional.mse_loss(model(batch), batch[:, :1]).backward()
        own = kept.setdefault("sums", defaultdict(int)) if table == "by default" else kept
        for each in model.parameters():
            before = own[key(each)] if table != "empty" else own.get(key(each), 0)
            own[key(each)] = 0.9 * before + each.grad
            each.data -= 0.05 * own[key(each)]
            each.grad = None

    engine = Engine(step, objects={"model": model})
    engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED, resume=True))
    engine.run([X[:20], X[20:40], X[40:]], **limits)
    return [*model.parameters()]


@pytest.mark.parametrize("table", ["filled", "empty", "by default"])
@pytest.mark.parametrize("key", [lambda weight: weight, id], ids=["weight", "id"])
def test_a_table_by_weights_is_the_same_after_a_resume(table, key, tmp_path):
    whole = momentum_by_hand(table, key, tmp_path / "whole")
    momentum_by_hand(table, key, tmp_path / "parts", until=4)
    assert all(map(torch.equal, whole, momentum_by_hand(table, key, tmp_path / "parts")))


def test_a_queue_that_the_run_makes_keeps_its_length_after_a_resume(tmp_path):
    def run(directory, until=None):
        queues, sums = {}, []
        model = nn.Linear(1, 1)

        def step(state, batch):
            queues.setdefault(batch % 2, deque(maxlen=2)).append(batch)
            sums.append(sum(map(sum, queues.values())))

        engine = Engine(step, objects={"model": model})
        engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED, resume=True))
        engine.run(range(12), max_epochs=1, max_iterations=until)
        return sums

    whole = run(tmp_path / "whole")
    assert run(tmp_path / "parts", until=7) + run(tmp_path / "parts") == whole


class Transition(NamedTuple):
    reward: float


@pytest.mark.parametrize("kind", [Transition, Settings])
def test_objects_that_functions_have_put_into_a_list_are_told_of(kind, tmp_path):
    seen = deque(maxlen=10)
    model = nn.Linear(1, 1)

    def step(state, batch):
        seen.append(kind([batch]))
        state.metrics["oldest"] = float(seen[0][0][0] if kind is Transition else seen[0].weight[0])

    engine = Engine(step, objects={"model": model})
    engine.add(Checkpoint(tmp_path))
    with pytest.warns(UserWarning, match=rf"seen \(with {kind.__name__}: use plain tuples"):
        engine.run(range(3), max_epochs=1)


def test_what_a_library_has_drawn_last_in_a_named_tuple_of_its_own_is_not_told_of(
    tmp_path, monkeypatch
):
    library = ModuleType("augmenting")
    library.__file__ = "/python/site-packages/augmenting.py"
    monkeypatch.setitem(sys.modules, "augmenting", library)
    item = type("ParamItem", (Transition,), {"__module__": "augmenting"})
    model = nn.Linear(1, 1)
    model.drawn = None

    def step(state, batch):
        model.drawn = [item(float(batch))]

    engine = Engine(step, objects={"model": model})
    engine.add(Checkpoint(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.run(range(3), max_epochs=1)


def test_an_optimizer_class_without_a_state_of_its_own_trains(tmp_path):
    class Half:
        def __init__(self, inner):
            self.inner, self.param_groups = inner, inner.param_groups

        def step(self):
            self.inner.step()
            self.inner.zero_grad()

        def state_dict(self):
            return self.inner.state_dict()

        def load_state_dict(self, saved):
            self.inner.load_state_dict(saved)

    model = nn.Linear(3, 1)
    before, optimizer = model.weight.clone(), Half(torch.optim.SGD(model.parameters(), 0.1))

    def step(state, batch):
        model(batch).sum().backward()
        optimizer.step()

    Engine(step, objects={"model": model, "optimizer": optimizer}).run([X], max_epochs=1)
    assert not torch.equal(model.weight, before)


def test_an_optimizer_with_a_state_of_a_replaced_parameter_is_told_of_at_the_save(tmp_path):
    model = nn.Sequential(nn.Linear(3, 1))
    optimizer = torch.optim.Adam(model.parameters())
    engine = supervised(model, optimizer, nn.MSELoss())
    engine.add(Checkpoint(tmp_path))

    @engine.on(Events.ITERATION_COMPLETED(at=1))
    def replace(state):
        model[0].weight = nn.Parameter(torch.zeros(1, 3))
        optimizer.param_groups[0]["params"] = [*model.parameters()]

    with pytest.raises(ValueError, match="a state of a parameter that is in none of its groups"):
        engine.run([(X, X[:, :1])], max_epochs=1)


def test_what_an_engine_inside_a_function_trains_is_told_of_unless_it_saves_itself(tmp_path):
    def run(*handlers):
        model, other = nn.Linear(3, 1), nn.Linear(3, 1)
        optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (model, other)]
        inner = supervised(other, optimizers[1], nn.MSELoss()).add(*handlers)
        engine = supervised(model, optimizers[0], nn.MSELoss())
        engine.add(Checkpoint(tmp_path / "outer", start_over=True))

        @engine.on(Events.ITERATION_COMPLETED)
        def train(state):
            inner.run([(X, X[:, :1])], max_epochs=1, parent=state)

        engine.run([(X, X[:, :1])], max_epochs=1)

    with pytest.warns(UserWarning, match=r"the run changes inner.objects\['model'\] \(Linear\)"):
        run()
    run(Checkpoint(tmp_path / "inner"))


@pytest.mark.parametrize("is_tied", [True, False])
def test_weights_that_a_function_ties_or_unties_are_told_of(is_tied, tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    if is_tied:
        model[1].weight = model[0].weight
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
    engine.add(Checkpoint(tmp_path))

    @engine.on(Events.ITERATION_COMPLETED)
    def change(state):
        weight = model[0].weight
        model[1].weight = nn.Parameter(weight.detach().clone()) if is_tied else weight

    with pytest.warns(UserWarning, match=r"model.0.weight and model.1.weight \(other weights are"):
        engine.run([(X, X[:, :1])], max_epochs=1)


def test_outputs_that_a_function_collects_in_an_epoch_are_told_of_and_its_last_one_is_not(tmp_path):
    model, outputs, last = nn.Linear(3, 1), [], SimpleNamespace(output=None)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
    engine.add(Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED))

    @engine.on(Events.ITERATION_COMPLETED)
    def keep(state):
        last.output = state.output
        outputs.append(state.output)
        state.metrics["count"] = float(len(outputs))

    with pytest.warns(UserWarning, match=r"changed outputs \(with Output") as told:
        engine.run([(X, X[:, :1])], max_epochs=1)
    assert "last" not in str(told[0].message)


def clipped(directory, epochs, *, change=lambda weights, new: None):
    """A run that clips some weights alone; `change` makes them others in epoch 2."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    first, second, _ = (layer.weight for layer in model)
    weights = {"now": first, "pair": (first, [first]), "all": [first], "by": {first: "first"}}
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.05), nn.MSELoss())
    shown = []

    @engine.on(Events.EPOCH_STARTED(at=2))
    def set_others(state):
        change(weights, second)

    @engine.on(Events.GRADIENTS_READY)
    def clip(state):
        of = [weights["now"], weights["pair"][0], *weights["pair"][1], *weights["all"]]
        for weight in {*of, *weights["by"]}:
            nn.utils.clip_grad_norm_(weight, 0.01)

    if directory:
        engine.add(Checkpoint(directory, resume=True))
        engine.on(Events.COMPLETED)(lambda state: shown.append(state.control.changes["values"]))
    engine.run([(X[:8], X[:8, :1])] * 3, max_epochs=epochs)
    return [*model.parameters()], shown


CHOICES = {
    "another one": lambda weights, new: weights.update(now=new),
    "a tuple": lambda weights, new: weights.update(pair=(new, [new])),
    "one more": lambda weights, new: weights["all"].append(new),
    "in place": lambda weights, new: weights["all"].__setitem__(0, new),
    "by a key": lambda weights, new: weights["by"].update({new: "second"}),
}


@pytest.mark.quick(change=2)
@pytest.mark.parametrize("change", CHOICES.values(), ids=CHOICES)
def test_which_weights_a_variable_holds_is_put_back_and_they_are_those_of_the_model(
    tmp_path, change
):
    whole, _ = clipped(None, 4, change=change)
    clipped(tmp_path, 2, change=change)
    rest, _ = clipped(tmp_path, 4, change=change)
    assert all(map(torch.equal, rest, whole))


def test_containers_of_weights_and_groups_of_an_optimizer_are_not_saved_again_or_warned_of(
    tmp_path,
):
    assert clipped(tmp_path, 2)[1] == [{}]
    model = nn.Linear(2100, 2000)  # more than a changed value may have
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, nn.MSELoss())
    engine.add(Checkpoint(tmp_path / "large", keep=latest(1)))
    weights, (group,), states = [*model.parameters()], optimizer.param_groups, optimizer.state

    @engine.on(Events.GRADIENTS_READY)
    def look(state):
        assert len(weights) >= len(states)
        group["lr"] = 0.1 / state.iteration

    engine.run([(torch.ones(1, 2100), torch.ones(1, 2000))], max_epochs=1)


@pytest.mark.parametrize("options", [{"override": ["optimizer.lr"]}, {"reset": ["optimizer"]}])
def test_a_group_that_a_function_holds_has_the_rate_of_an_override_or_a_new_start(
    tmp_path, options
):
    def run(rate, **options):
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
        (group,), rates = optimizer.param_groups, []
        engine = supervised(model, optimizer, nn.MSELoss())
        engine.on(Events.STEP_COMPLETED)(lambda state: rates.append(group["lr"]))
        engine.add(Checkpoint(tmp_path, **options))
        engine.run([(X, X[:, :1])], max_epochs=2 if options else 1)
        return rates, optimizer.param_groups[0]["lr"]

    run(0.1)
    assert run(0.05, resume=True, **options) == ([0.05], 0.05)
