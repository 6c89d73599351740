"""Averages and best weights of models whose tensors are replaced, grow, come and go."""

import functools
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import EMA, SWA, NonFiniteGuard, RestoreBest, SpikeGuard, Validate, find_lr


def batches():
    made = torch.Generator().manual_seed(0)
    return [(torch.randn(6, 4, generator=made), torch.randn(6, 1, generator=made)) for _ in "abcd"]


class Net(nn.Module):
    """A mean that each forward pass assigns anew: of the same shape, growing, or None at first."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(1)
        self.last, self.kind = nn.Linear(4, 1), kind
        first = {"same": torch.zeros(4), "grows": torch.zeros(0, 4), "scalar": torch.zeros(4)}
        self.register_buffer("mean", first.get(kind))

    def forward(self, input):
        if self.training:
            now = input.detach().mean(0)
            if self.kind == "grows":
                self.mean = torch.cat([self.mean, now[None]])[-12:]
            elif self.kind == "scalar":
                self.mean = 0.9 * self.mean.mean() + 0.1 * now.mean()
            else:
                self.mean = now if self.mean is None else 0.9 * self.mean + 0.1 * now
        return self.last(input - (0 if self.kind == "grows" else self.mean))


def run(model, *handlers, epochs=3, each_epoch=None, data=None):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss).add(*handlers)
    if each_epoch is not None:
        engine.on(Events.EPOCH_STARTED(at=2))(lambda state: each_epoch(model, optimizer))
    engine.run(data or batches(), max_epochs=epochs)
    return engine


def test_the_average_follows_a_buffer_that_is_assigned_anew():
    model, average = Net("same"), None
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss)
    engine.add(EMA(0.9, warmup=False))
    seen = []
    engine.on(Events.STEP_COMPLETED)(lambda state: seen.append(model.mean))
    engine.run(batches(), max_epochs=3)
    average = seen[0].clone()
    for each in seen[1:]:
        average.lerp_(each, 1 - 0.9)
    assert torch.equal(engine.objects["ema"].mean, average)


@pytest.mark.parametrize("kind", ["same", "grows", "scalar", "none"])
def test_training_and_shapes_are_right_whatever_the_buffer_becomes(kind):
    plain = run(Net(kind)).objects["model"]
    engine = run(
        Net(kind),
        EMA(0.9),
        Validate(batches()[:2]),
        Validate(batches()[:2], name="ema", weights="ema"),
        NonFiniteGuard("skip"),
        SpikeGuard("rewind", steps=2),
    )
    assert torch.equal(engine.objects["model"].mean, plain.mean)
    assert torch.equal(engine.objects["model"].last.weight, plain.last.weight)
    assert engine.objects["ema"].mean.shape == plain.mean.shape


@pytest.mark.parametrize("kind", ["same", "grows", "scalar", "none"])
def test_the_best_weights_are_put_back_with_their_shapes(kind):
    kept = []

    def look(state):
        model = state.engine.objects["model"]
        kept.append((float(state.metrics["val/loss"]), model.mean.clone()))

    model = Net(kind)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 1.0), nn.functional.mse_loss)
    engine.add(Validate(batches()[:2]), RestoreBest("val/loss"))
    engine.on(Events.EPOCH_COMPLETED)(look)
    engine.run(batches(), max_epochs=4)
    best = min(kept, key=lambda each: each[0])[1]
    assert torch.equal(model.mean, best)


@pytest.mark.parametrize("kind", ["same", "grows", "scalar", "none"])
def test_a_learning_rate_test_leaves_no_trace_in_them(kind):
    model = Net(kind)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss)
    before = model.mean
    find_lr(engine, batches(), steps=4)
    assert model.mean is before
    engine.run(batches(), max_epochs=3)
    assert torch.equal(model.mean, run(Net(kind)).objects["model"].mean)


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def replaced(model, optimizer):
    own = nn.Parameter(model[0].weight.detach().clone())
    model[0].weight = optimizer.param_groups[0]["params"][0] = own


def test_a_parameter_that_a_script_replaces_is_averaged_on():
    whole = run(mlp(), EMA(0.9)).objects["ema"]
    other = run(mlp(), EMA(0.9), each_epoch=replaced).objects["ema"]
    assert all(map(torch.equal, whole.parameters(), other.parameters()))


def grown(model, optimizer):
    for layer, name in ((model[0], "weight"), (model[0], "bias"), (model[2], "weight")):
        old = getattr(layer, name).detach()
        new = nn.Parameter(
            torch.cat(
                [old, old[:, :2] if layer is model[2] else old[:2]], -1 if layer is model[2] else 0
            )
        )
        setattr(layer, name, new)
    optimizer.param_groups[0]["params"] = [*model.parameters()]


def test_parameters_that_grow_begin_anew_in_the_average_with_a_word_and_the_best_are_put_back():
    with pytest.warns(
        UserWarning, match=r"begin anew with their present values: 0\.weight, 0\.bias"
    ):
        engine = run(mlp(), EMA(0.9), Validate(batches(), weights="ema"), each_epoch=grown)
    assert engine.objects["ema"][0].weight.shape == (10, 4)
    engine = run(mlp(), Validate(batches()), RestoreBest("val/loss"), each_epoch=grown)
    shapes = {name: engine.objects[name][0].weight.shape for name in ("model", "best")}
    assert shapes == {"model": (8, 4), "best": (10, 4)}  # now it holds the last ones


def test_a_layer_that_comes_is_averaged_from_then_on():
    def more(model, optimizer):
        model.append(nn.Linear(1, 1))
        optimizer.add_param_group({"params": [*model[3].parameters()]})

    engine = run(mlp(), EMA(0.9), Validate(batches(), weights="ema"), each_epoch=more)
    assert list(engine.objects["ema"].state_dict()) == list(engine.objects["model"].state_dict())
    assert not torch.equal(engine.objects["ema"][3].weight, engine.objects["model"][3].weight)
    whole = run(mlp(), EMA(0.9), epochs=1).objects["ema"]
    assert not torch.equal(whole[0].weight, engine.objects["ema"][0].weight)


def test_best_weights_from_before_a_layer_came_are_refused_by_name():
    def worse(model, optimizer):
        model.append(nn.Linear(1, 1))
        nn.init.constant_(model[3].bias, 1e3)
        optimizer.add_param_group({"params": [*model[3].parameters()]})

    with pytest.raises(ValueError, match=r"3\.bias, 3\.weight.*if the model has all its parts"):
        run(mlp(), Validate(batches()), RestoreBest("val/loss"), each_epoch=worse)


def test_weights_that_are_no_longer_tied_have_averages_of_their_own():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
            self.second.weight = self.first.weight

        def forward(self, input):
            return self.last(self.second(self.first(input).tanh()))

    def untied(model, optimizer):
        model.second.weight = nn.Parameter(model.second.weight.detach().clone())
        optimizer.add_param_group({"params": [model.second.weight]})

    average = run(Tied(), EMA(0.9)).objects["ema"]
    assert average.first.weight is average.second.weight
    engine = run(Tied(), EMA(0.5, warmup=False), each_epoch=untied, epochs=9)
    average, model = engine.objects["ema"], engine.objects["model"]
    distance = (average.second.weight - model.second.weight).abs().max()
    assert distance < (model.first.weight - model.second.weight).abs().max() / 4


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize(
    "change",
    [
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        functools.partial(prune.l1_unstructured, name="weight", amount=0.3),
    ],
    ids=["weight norm", "spectral norm", "new weight norm", "new spectral norm", "pruned"],
)
def test_a_model_with_computed_weights_is_averaged(change):
    model = mlp()
    change(model[0])
    engine = run(
        model, EMA(0.9), Validate(batches(), weights="ema"), RestoreBest("val/loss", weights="ema")
    )
    assert engine.objects["ema"](batches()[0][0]).isfinite().all()


def test_a_model_that_keeps_tensors_with_a_graph_is_averaged_and_one_with_a_lock_is_told():
    class Keeps(nn.Linear):
        def forward(self, input):
            self.latest = {"output": [super().forward(input)]}
            return self.latest["output"][0]

    model = Keeps(4, 1)
    model(batches()[0][0])
    run(model, EMA(0.9))
    model = mlp()
    model.lock = threading.Lock()
    with pytest.raises(TypeError, match=r"copy\.deepcopy fails: cannot pickle.*lock.*__deepcopy__"):
        run(model, EMA(0.9))


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_layers_are_averaged_from_their_first_batch_on():
    def lazy():
        torch.manual_seed(1)
        return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(1))

    def ready():
        model = lazy()
        model(batches()[0][0])
        model[1].reset_running_stats()
        return model

    handlers = [NonFiniteGuard("skip"), SpikeGuard("rewind", steps=2), Validate(batches())]
    found = run(lazy(), EMA(0.9), *handlers, RestoreBest("val/loss")).objects
    expected = run(ready(), EMA(0.9), *handlers, RestoreBest("val/loss")).objects
    for name in ("ema", "model", "best"):
        one, other = found[name].state_dict(), expected[name].state_dict()
        assert all(torch.equal(one[key], other[key]) for key in other)
    model = lazy()
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss)
    with pytest.raises(ValueError, match="lazy layers.*call the model with a batch first"):
        find_lr(engine, batches(), steps=3)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

    def forward(self, input, scale=None):
        return self.last(self.norm(self.first(input if scale is None else input * scale)).relu())


KINDS = {
    "pairs": (lambda x, y: (x, y), None, 1.0),
    "mappings": (lambda x, y: {"input": x, "labels": y}, None, 1.0),
    "several inputs": (lambda x, y: ((x, torch.tensor(2.0)), y), None, 2.0),
    "prepared": (lambda x, y: (y, x), lambda batch: (batch[1] * 3, batch[0]), 3.0),
}


@pytest.mark.parametrize("step", ["supervised", "own"])
@pytest.mark.parametrize("kind", KINDS)
def test_swa_measures_norms_of_batches_as_the_engine_prepares_them(kind, step):
    made, prepare, scale = KINDS[kind]
    data = [made(*batch) for batch in batches()]
    model = Normed()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    arguments = {} if prepare is None else {"prepare_batch": prepare}
    engine = supervised(model, optimizer, nn.functional.mse_loss, **arguments)
    if step == "own":  # it knows no evaluation
        update = Update(optimizer)

        def train(state, batch):
            x, y = batches()[state.iteration % 4] if prepare is None else prepare(batch)
            output = model(x * scale if prepare is None else x)
            update(state, nn.functional.mse_loss(output, y))

        engine = Engine(train, update, objects={"model": model, "optimizer": optimizer})
    engine.add(SWA(batch_norm=data))
    engine.run(data, max_epochs=2)
    average = engine.objects["swa"]
    with torch.no_grad():
        hidden = [average.first(x * scale) for x, _ in batches()]
    expected = torch.stack([each.mean(0) for each in hidden]).mean(0)
    assert torch.allclose(average.norm.running_mean, expected, atol=1e-6)
    assert average.norm.num_batches_tracked == 4
    assert average.norm.momentum == model.norm.momentum == 0.1
    assert model.training
