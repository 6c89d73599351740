"""Evaluation leaves training bit-identical."""

import copy
import functools
import random

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from camshaft import Engine, Events, supervised
from camshaft.engine.modules import twin
from camshaft.handlers import Collect

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.set_vital. is deprecated"),  # by torchdata 0.11
]


class Net(torch.nn.Module):
    """Dropout, a BatchNorm that is frozen and one that is not."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.frozen = torch.nn.BatchNorm1d(8).eval()
        self.norm = torch.nn.BatchNorm1d(8)
        self.dropout = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(8, 2)

    def forward(self, input):
        return self.last(self.dropout(self.norm(self.frozen(self.first(input)))))


def noisy(input):
    return input + torch.rand(()) + random.random() + numpy.random.rand()


def build(generator=False, accumulate=1):
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = TensorDataset(torch.randn(30, 4), torch.randint(2, (30,)))
    own = torch.Generator().manual_seed(3) if generator else None
    loader = DataLoader(data, 5, shuffle=True, generator=own)

    def prepare(batch):
        return noisy(batch[0]).float(), batch[1]

    engine = supervised(
        model,
        optimizer,
        torch.nn.functional.cross_entropy,
        prepare_batch=prepare,
        accumulate=accumulate,
    )
    return engine, model, loader


def weights_after(evaluate, generator=False, accumulate=1):
    engine, model, loader = build(generator, accumulate)
    losses = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: losses.append(state.metrics["loss"].item()))
    engine.on(Events.ITERATION_COMPLETED(every=3))(lambda state: evaluate(engine, loader))
    engine.run(loader, max_epochs=3)
    return losses, {name: value.clone() for name, value in model.state_dict().items()}


def nothing(engine, loader):
    pass


def over_the_training_data(engine, loader):
    engine.evaluate(loader)


def with_an_exception(engine, loader):
    @engine.evaluation.on(Events.ITERATION_COMPLETED(at=2))
    def fail(state):
        random.random()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        engine.evaluate(loader)
    engine.evaluation.off(fail)


def of_other_weights(engine, loader):
    engine.objects.setdefault("other", twin(engine.objects["model"]))
    engine.evaluate(loader, weights="other", seed=5)


@pytest.mark.parametrize("generator", [False, True], ids=["global", "own generator"])
@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("evaluate", [over_the_training_data, with_an_exception, of_other_weights])
def test_evaluating_every_three_batches_changes_no_bit_of_training(evaluate, accumulate, generator):
    losses, weights = weights_after(evaluate, generator, accumulate)
    expected_losses, expected = weights_after(nothing, generator, accumulate)
    assert losses == expected_losses
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_evaluation_is_in_evaluation_mode_without_gradients_and_modes_come_back_each():
    engine, model, loader = build()
    seen = []

    @engine.evaluation.on(Events.ITERATION_COMPLETED(at=1))
    def look(state):
        modes = {module.training for module in model.modules()}
        seen.append((modes, torch.is_grad_enabled(), state.training))

    engine.evaluate(loader)
    assert seen == [({False}, False, False)]
    assert model.training
    assert not model.frozen.training
    assert model.norm.training
    assert torch.is_grad_enabled()


def test_evaluation_can_have_a_process_function_of_its_own():
    engine = Engine(lambda state, batch: "train", evaluate=lambda state, batch: "evaluate")
    assert engine.run("a", max_epochs=1).output == "train"
    assert engine.evaluate("a").output == "evaluate"


def test_without_one_the_process_function_can_look_at_the_state():
    engine = Engine(lambda state, batch: state.training)
    assert engine.run("a", max_epochs=1).output is True
    assert engine.evaluate("a").output is False


def test_evaluation_has_handlers_of_its_own():
    engine, calls = Engine(lambda state, batch: None), []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: calls.append("train"))
    engine.evaluation.on(Events.EPOCH_COMPLETED)(lambda state: calls.append("evaluate"))
    engine.evaluate("a")
    assert calls == ["evaluate"]
    engine.run("a", max_epochs=1)
    assert calls == ["evaluate", "train"]


def test_evaluation_can_be_capped_and_knows_its_parent():
    engine = Engine(lambda state, batch: batch)
    parent = engine.run("a", max_epochs=1)
    state = engine.evaluate("abcdef", epoch_length=3, parent=parent)
    assert (state.iteration, state.output, state.parent) == (3, "c", parent)


def test_modules_of_a_hand_written_engine_are_put_into_evaluation_mode_too():
    model, modes = torch.nn.Dropout(0.5), []
    engine = Engine(lambda state, batch: modes.append(model.training), objects={"model": model})
    engine.evaluate("a")
    assert modes == [False]
    assert model.training


class OwnWay(DataLoader):
    """A loader that is read as it is, for it has an `__iter__` of its own."""

    def __iter__(self):
        return super().__iter__()


@pytest.mark.quick(kind=1)
@pytest.mark.parametrize("kind", [OwnWay, StatefulDataLoader])
@pytest.mark.parametrize("when", [Events.STARTED, Events.EPOCH_STARTED, Events.ITERATION_COMPLETED])
def test_a_part_of_the_training_data_can_be_evaluated_at_any_moment(kind, when):
    def drawn(*evaluations):
        torch.manual_seed(0)
        arguments = {"num_workers": 1, "persistent_workers": True}
        loader, seen = kind(torch.arange(6), 2, shuffle=True, **arguments), []
        engine = Engine(lambda state, batch: seen.append((state.training, batch.tolist())))
        for event in evaluations:
            engine.on(event)(lambda state: engine.evaluate(loader, epoch_length=1, parent=state))
        engine.run(loader, max_epochs=2)
        loader._iterator = None  # a garbage collection ends workers only after 5 s
        return [batch for training, batch in seen if training]

    assert drawn(when) == drawn()


def test_an_evaluation_after_the_last_batch_does_not_move_the_place_that_the_data_tells():
    def drawn(*stops):
        torch.manual_seed(0)
        loader, seen = StatefulDataLoader(torch.arange(6), 2, shuffle=True), []
        engine = Engine(lambda state, batch: seen.append((state.training, batch.tolist())))
        engine.on(Events.ITERATION_COMPLETED)(lambda s: engine.evaluate(loader, epoch_length=1))
        for stop in stops:
            engine.on(Events.ITERATION_COMPLETED(at=stop))(lambda s: s.interrupt("x"))
        state = engine.run(loader, max_epochs=2)
        for _ in stops:
            engine.run(StatefulDataLoader(torch.arange(6), 2, shuffle=True), state=state)
        return [batch for training, batch in seen if training]

    assert drawn(3) == drawn()


class Noisy:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.rand(()) + random.random()


@pytest.mark.parametrize("workers", [0, 2])
def test_with_a_seed_samples_that_are_drawn_at_random_are_the_same_each_time(workers):
    engine, seen = Engine(lambda state, batch: batch.tolist()), []
    engine.evaluation.on(Events.ITERATION_COMPLETED)(lambda state: seen.append(state.output))
    loader = DataLoader(Noisy(), 4, num_workers=workers)
    for seed in (1, 1, 2):
        torch.rand(())
        engine.evaluate(loader, seed=seed)
    assert seen[0] == seen[1] != seen[2]


@functools.lru_cache
def angles(length):
    return torch.arange(length).float().cos()


class Table(torch.nn.Module):
    """Makes the table that it needs when it needs it: an attribute, a buffer, or outside of it."""

    def __init__(self, where):
        super().__init__()
        self.embed, self.where = torch.nn.Embedding(20, 1), where
        self.length = 0
        if where == "buffer":
            self.register_buffer("made", torch.zeros(0), persistent=False)
        else:
            self.made = None

    def table(self, length):
        if self.where == "outside":
            return angles(length)
        if length > self.length:
            self.length, made = length, torch.arange(length).float().cos()
            if self.where == "registered":
                if "made" in vars(self):
                    del self.made
                self.register_buffer("made", made, persistent=False)
            self.made = made
        return self.made[:length]

    def forward(self, tokens):
        return (self.embed(tokens)[..., 0] * self.table(tokens.shape[1])).sum(1)


@pytest.mark.parametrize("when", [Events.STARTED, Events.ITERATION_COMPLETED])
@pytest.mark.parametrize("where", ["attribute", "buffer", "registered", "outside"])
def test_a_table_that_a_model_makes_in_an_evaluation_serves_the_training(where, when):
    def weights(*events):
        angles.cache_clear()
        torch.manual_seed(0)
        model = Table(where)
        made = [torch.randint(20, (3, length)) for length in (5, 6, 4, 9)]
        data = [(each, each.float().sum(1)) for each in made]
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
        for event in events:
            engine.on(event)(lambda state: engine.evaluate(data[3:], parent=state))
        engine.run(data[:3], max_epochs=2)
        return model.embed.weight

    assert torch.equal(weights(when), weights())


class Counts(torch.nn.Module):
    """Changes buffers in each forward pass, also in an evaluation."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("cache", torch.zeros(0, 4))
        self.register_buffer("first", None)
        self.kept = 0

    def forward(self, input):
        self.norm.train()
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * input.mean(0)
        self.cache, self.kept = torch.cat([self.cache, input]), self.kept + len(input)
        assert self.kept == len(self.cache) or not self.training
        self.first = input if self.first is None else self.first
        return self.layer(self.norm(input) - self.mean - self.first[0] - self.cache.mean(0))


@pytest.mark.parametrize("weights", [None, "other"])
def test_buffers_that_an_evaluation_changes_or_assigns_are_put_back(weights):
    def trained(*evaluations):
        torch.manual_seed(0)
        model = Counts()
        data = [(torch.randn(5, 4), torch.randint(2, (5,))) for _ in range(6)]
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        engine = supervised(model, optimizer, torch.nn.functional.cross_entropy)
        engine.objects["other"] = twin(model)
        for when in evaluations:
            engine.on(when)(lambda state: engine.evaluate(data[:2], weights=weights))
        engine.run(data, max_epochs=2)
        return model.state_dict() | {f"other.{n}": t for n, t in twin(model).state_dict().items()}

    found, expected = trained(Events.STARTED | Events.ITERATION_COMPLETED(every=3)), trained()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_an_embedding_that_scales_the_rows_it_looks_up_keeps_them(kind):
    table = kind(3, 4, max_norm=0.1)
    before = table.weight.detach().clone()
    engine = Engine(lambda state, batch: table(batch).norm(dim=-1).max(), objects={"table": table})
    seen = engine.evaluate([torch.tensor([[0, 1]])]).output
    assert seen < 0.11  # it was scaled inside
    assert torch.equal(table.weight, before)


class Caches(torch.nn.Linear):
    """Evaluates with what it has cached, until it trains again, as a Gaussian process does."""

    table = None

    def train(self, mode=True):
        if mode:
            self.table = None
        return super().train(mode)

    def forward(self, x):
        if self.training:
            return super().forward(x)
        if self.table is None:
            self.table = self.weight.detach().clone()
        return x @ self.table.T


class Merges(torch.nn.Linear):
    """Merges what it has learnt into its weight for evaluations, which rounds."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)
        self.learnt = torch.nn.Parameter(torch.full_like(self.weight, 1e-3 / 3))
        self.is_merged = False

    def train(self, mode=True):
        super().train(mode)
        if mode is self.is_merged:
            with torch.no_grad():
                self.weight += -self.learnt if mode else self.learnt
            self.is_merged = not mode
        return self

    def forward(self, x):
        return x @ (self.weight if self.is_merged else self.weight + self.learnt).T


@pytest.mark.parametrize("kind", [Caches, Merges])
def test_a_layer_that_prepares_evaluations_in_its_train_does_so_and_no_bit_of_training_changes(
    kind,
):
    def trained(validates):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), kind(3, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine, found = supervised(model, optimizer, torch.nn.MSELoss()), []
        x, y = torch.randn(8, 3), torch.randn(8, 1)

        @engine.on(Events.EPOCH_COMPLETED)
        def compare(state):
            if validates:
                by_engine = engine.evaluate([(x, y)]).metrics["loss"]
                twin = copy.deepcopy(model)
                twin.train().eval()
                assert by_engine == torch.nn.functional.mse_loss(twin(x), y)
                found.append(by_engine)

        engine.run([(x, y)], max_epochs=3)
        assert len({*map(float, found)}) == (3 if validates else 0)
        return model.state_dict()

    assert all(map(torch.equal, trained(True).values(), trained(False).values()))


def test_a_layer_that_caches_for_evaluations_caches_anew_in_each_also_if_the_script_called_eval():
    model = Caches(3, 1).eval()
    engine = supervised(model, None, torch.nn.MSELoss())
    data = [(torch.ones(2, 3), torch.zeros(2, 1))]
    with torch.no_grad():
        found = []
        for by in (1, 2):
            model.weight.fill_(by)
            found.append(engine.evaluate(data).metrics["loss"])
    assert found == [9, 36]
    assert not model.training


def test_a_handler_that_attaches_itself_to_evaluations_is_refused_on_them():
    class Own:
        def attach(self, engine):
            engine.evaluation.on(Events.COMPLETED)(self.look)

        def look(self, state):
            seen.append(state.iteration)

    seen = []
    engine = Engine(lambda state, batch: batch)
    for handler in Own(), Collect("predictions"):
        with pytest.raises(ValueError, match=r"attaches itself to evaluations.*: write engine.add"):
            engine.evaluation.add(handler)
    own = Own()
    engine.add(own, Collect("predictions"))
    assert engine.evaluate([1, 2]).collected == {"predictions": [1, 2]}
    assert seen == [2]


class Doubled(torch.nn.Linear):
    """What stands in the place of a layer, as a LoRA does."""

    def forward(self, input):
        return 2 * super().forward(input)


def test_an_evaluation_calls_what_stands_in_the_place_of_an_encoders_layer():
    for first, activation in (
        (Doubled(16, 32), "relu"),
        (torch.nn.Linear(16, 32), torch.nn.GELU("tanh")),
    ):
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, 0.0, activation, batch_first=True)
        layer.linear1 = first
        engine = supervised(layer, None, torch.nn.MSELoss())
        texts = torch.randn(8, 5, 16)
        training = torch.nn.functional.mse_loss(layer(texts), texts)
        assert engine.evaluate([(texts, texts)]).metrics["loss"] == training.item()
        assert torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        engine.evaluate([(texts, texts)])
        assert not torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(True)
