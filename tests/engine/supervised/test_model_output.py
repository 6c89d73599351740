"""What a model returned beside its loss and prediction, for handlers and metrics."""

import weakref
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch.nn.functional import mse_loss

from camshaft import Events, supervised
from camshaft.handlers import Average, Metrics

ROWS = torch.arange(15.0).view(5, 3) / 15
BATCH = {"x": ROWS, "labels": ROWS[:, :2]}


class Cache:
    def __init__(self, keys):
        self.keys = keys


@dataclass(frozen=True)
class Made:
    loss: torch.Tensor | None
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    cache: object
    kind: str = "made"


Named = namedtuple("Named", ["loss", "logits", "hidden", "cache", "kind"])


class Model(torch.nn.Module):
    def __init__(self, form=dict):
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.out = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        self.form, self.pointers, self.cache = form, None, None

    def forward(self, x, labels=None):
        hidden = self.hidden(x)
        logits = self.out(hidden.tanh())
        loss = None if labels is None else mse_loss(logits, labels)
        cache = Cache(hidden)
        self.cache, self.pointers = weakref.ref(cache), (logits.data_ptr(), hidden.data_ptr())
        return self.form(loss=loss, logits=logits, hidden=(hidden,), cache=cache, kind="made")


def run(model, data=(BATCH,), look=None, **arguments):
    engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.1), **arguments)
    if look is not None:
        engine.on(Events.ITERATION_COMPLETED)(look)
    return engine, engine.run(data, max_epochs=1)


def field(output, name):
    return output[name] if isinstance(output, dict) else getattr(output, name)


@pytest.mark.parametrize("form", [dict, Made, Named])
@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_handlers_have_all_that_a_model_returned_without_graphs_and_without_copies(form, mode):
    model, seen = Model(form), []

    def look(state):
        made = state.output.model_output
        assert type(made) is form
        assert field(made, "logits") is state.output.prediction
        assert torch.equal(field(made, "loss"), state.output.loss)
        assert field(made, "kind") == "made"
        tensors = [field(made, "loss"), field(made, "logits"), *field(made, "hidden")]
        assert not any(each.requires_grad for each in tensors)
        assert tuple(each.data_ptr() for each in tensors[1:]) == model.pointers
        seen.append(mode)

    engine, _ = run(model, look=look if mode == "training" else None)
    if mode == "evaluation":
        engine.evaluation.on(Events.ITERATION_COMPLETED)(look)
        engine.evaluate([BATCH])
    assert seen == [mode]


def test_an_object_of_a_class_such_as_a_cache_is_left_out_and_lives_no_longer():
    model = Model()

    def look(state):
        assert state.output.model_output["cache"] is None
        assert model.cache() is None

    run(model, look=look)


def test_the_output_of_a_model_without_a_prediction_in_it_is_the_prediction():
    model = torch.nn.Linear(3, 2)
    _, state = run(model, [(ROWS, ROWS[:, :2])], loss_fn=mse_loss)
    assert state.output.model_output is state.output.prediction

    class Pair(Model):
        def forward(self, x):
            return self.out(self.hidden(x)), Cache(x)

    _, state = run(Pair(), [(ROWS, ROWS[:, :2])], loss_fn=lambda made, y: mse_loss(made[0], y))
    assert state.output.model_output is state.output.prediction
    assert isinstance(state.output.prediction[1], Cache)


def test_metrics_and_means_take_what_they_need_of_it():
    def sizes(hidden):
        return hidden.abs().mean()

    model = Model()
    engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.0))
    engine.add(Metrics({"size": sizes}, select=lambda output: output.model_output["hidden"][0]))
    expected = model.hidden(ROWS).abs().mean()
    assert engine.run([BATCH], max_epochs=1).metrics["size"] == pytest.approx(expected.item())


def test_a_split_batch_has_the_rows_and_numbers_of_its_parts_and_none_for_the_rest():
    class Wide(Model):
        def forward(self, x, labels=None):
            made = super().forward(x, labels)
            return {**made, "tokens": made["logits"].repeat(2, 1), "fixed": self.out.weight * 1}

    _, whole = run(Wide())
    _, state = run(Wide(), split=2)
    made, expected = state.output.model_output, whole.output.model_output
    assert made["logits"] is state.output.prediction
    torch.testing.assert_close(made["hidden"], expected["hidden"])
    assert torch.equal(made["loss"], state.output.loss)
    assert (made["tokens"], made["fixed"], made["cache"]) == (None, None, None)
    assert made["kind"] == "made"
    assert expected["fixed"].shape == (2, 4)
    _, state = run(Wide(), split=8)  # in one part
    assert state.output.model_output["fixed"].shape == (2, 4)


def test_a_split_batch_counts_numbers_by_the_targets_of_its_parts():
    def targets(output):
        return (output.target > 0.2).sum()

    def masked(made, target):
        return ((made["logits"] - target).square().mean(1) * (target[:, 0] > 0.2)).mean()

    class Own(Model):
        def forward(self, x, labels):
            made = super().forward(x, labels)
            return {**made, "loss": masked(made, labels)}

    _, state = run(Own(), split=2, weight=targets)
    assert torch.equal(state.output.model_output["loss"], state.output.loss)


def test_parts_of_a_batch_with_unlike_numbers_of_tensors_have_no_whole_output():
    class Listed(Model):
        def forward(self, x, labels=None):
            return {**super().forward(x, labels), "boxes": [*x]}

    _, state = run(Listed(), split=2)
    assert state.output.model_output is None
    assert len(state.output.prediction) == 5
    _, state = run(Listed())
    assert len(state.output.model_output["boxes"]) == 5


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_a_compiled_model_has_its_whole_output_too():
    class Plain(Model):
        def forward(self, x, labels=None):
            hidden = self.hidden(x)
            logits = self.out(hidden)
            return {"loss": mse_loss(logits, labels), "logits": logits, "hidden": hidden}

    _, state = run(Plain(), compile={"backend": "eager"})
    assert state.output.model_output["hidden"].shape == (5, 4)
    assert not state.output.model_output["hidden"].requires_grad


def test_training_is_the_same_whatever_else_the_model_returns():
    class Bare(Model):
        def forward(self, x, labels=None):
            made = super().forward(x, labels)
            return {"loss": made["loss"], "logits": made["logits"]}

    models = Model(), Bare()
    for model in models:
        engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.1)).add(Average("loss"))
        engine.run([BATCH] * 3, max_epochs=1)
    assert all(map(torch.equal, *(model.parameters() for model in models)))
