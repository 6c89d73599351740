"""Batches by name, models that compute their loss, losses over tokens, data without targets."""

import math
import warnings
from collections import UserDict
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, Update, count_next_tokens, count_tokens, supervised, to_device
from camshaft.handlers import Average, Collect, Metrics, NonFiniteGuard, Validate


@dataclass
class Made:
    """What a model returns that speaks Hugging Face's protocol without being theirs."""

    loss: torch.Tensor | None
    logits: torch.Tensor
    states: torch.Tensor


class Tagger(torch.nn.Module):
    """Labels each token, and computes its loss where it gets labels."""

    def __init__(self, returns=Made):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 3)
        self.returns, self.seen = returns, []

    def forward(self, *, input_ids, attention_mask=None, labels=None):
        self.seen.append(len(input_ids))
        logits = self.head(self.embed(input_ids))
        loss = None if labels is None else cross_entropy(logits.flatten(0, 1), labels.flatten())
        return self.returns(loss=loss, logits=logits, states=logits)


def tagger(**arguments):
    model = Tagger(arguments.pop("returns", Made)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return supervised(model, optimizer, **arguments), model


def sentences(*counts, length=6, rows=2):
    """Batches in which so many tokens have a label; others have -100."""
    generator = torch.Generator().manual_seed(3)
    for count in counts:
        labels = torch.randint(3, (rows * length,), generator=generator)
        labels[count:] = -100
        ids = torch.randint(7, (rows, length), generator=generator)
        yield {"input_ids": ids, "labels": labels.view(rows, length)}


def whole(batches):
    """The loss over all tokens of all batches at once, by a fresh model; and the model."""
    model = Tagger().double()
    batch = {name: torch.cat([each[name] for each in batches]) for name in batches[0]}
    return model(**batch).loss, model


@pytest.mark.parametrize("returns", [Made, dict], ids=["dataclass", "dict"])
@pytest.mark.parametrize("kind", [dict, UserDict], ids=["dict", "other mapping"])
def test_a_model_gets_a_batch_by_name_and_its_own_loss_is_trained_on(kind, returns):
    (batch,) = sentences(12)
    engine, model = tagger(returns=returns)
    state = engine.run([kind(batch)] * 3, max_epochs=1)
    expected = Tagger().double()
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        made = expected(**batch)
        made.loss.backward()
        optimizer.step()
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(state.output.prediction, made.logits)
    assert torch.equal(state.metrics["loss"], made.loss.detach())
    assert torch.equal(state.output.target, batch["labels"])
    assert not state.output.prediction.requires_grad


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, left, right):
        return self.scale * (left + 2 * right)


@pytest.mark.parametrize(
    ("batch", "prepare"),
    [
        ({"left": 1, "right": 3, "labels": 0}, None),
        (({"left": 1, "right": 3}, 0), None),
        (((1, 3), 0), None),
        ([[1, 3], 0], None),  # what a DataLoader makes of such tuples
        ((1, 3, 0), lambda batch: (batch[:2], batch[2])),
    ],
    ids=["mapping", "named inputs", "tuple", "list", "three"],
)
def test_a_model_of_several_inputs_gets_them_by_name_or_in_order(batch, prepare):
    batch = torch.utils._pytree.tree_map(lambda x: torch.full((2,), float(x)), batch)
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, mse_loss, prepare_batch=prepare)
    assert engine.run([batch], max_epochs=1).output.prediction.tolist() == [7, 7]


def test_a_model_that_returns_its_loss_in_a_tuple_gets_the_whole_batch():
    class Own(Pair):
        def forward(self, left, right):
            made = self.scale * left
            return made, mse_loss(made, right)

    model = Own()
    engine = supervised(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        lambda output, target: output[1],
        prepare_batch=lambda batch: (batch, batch[1]),
    )
    state = engine.run([(torch.ones(2), torch.full((2,), 3.0))], max_epochs=1)
    assert state.metrics["loss"] == 4
    assert model.scale.item() == pytest.approx(1.4)


def test_only_labels_are_the_target_of_a_batch_by_name():
    class Copier(Pair):
        def forward(self, source, target):
            return self.scale * (source + target)

    model = Copier()
    engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.1), mse_loss)
    batch = {"source": torch.ones(2), "target": torch.ones(2), "labels": torch.zeros(2)}
    assert engine.run([batch], max_epochs=1).output.target is batch["labels"]
    del batch["labels"]
    with pytest.raises(TypeError, match="a dict with 'source', 'target', without a target; it"):
        engine.run([batch], max_epochs=1)


def test_with_a_loss_function_the_model_gets_no_labels_and_the_function_its_whole_output():
    (batch,) = sentences(12)
    seen = []

    def loss_fn(output, labels):
        seen.append((output.loss, output.states))
        return cross_entropy(output.logits.flatten(0, 1), labels.flatten())

    engine, _ = tagger(loss_fn=loss_fn)
    output = engine.run([batch], max_epochs=1).output
    assert seen[0][0] is None
    assert torch.equal(output.prediction, seen[0][1])
    assert torch.equal(output.target, batch["labels"])


@pytest.mark.parametrize("form", ["mean", "own", "sum", "partial"])
@pytest.mark.parametrize("split", [None, 1])
def test_each_token_of_a_step_counts_once_whatever_the_batches_hold(form, split):
    def mean(output, labels, reduction="mean"):
        return cross_entropy(output.logits.flatten(0, 1), labels.flatten(), reduction=reduction)

    class Sum(torch.nn.CrossEntropyLoss):
        def forward(self, output, labels):
            return super().forward(output.logits.flatten(0, 1), labels.flatten())

    loss_fn = {"mean": mean, "own": None, "sum": Sum(reduction="sum")}.get(
        form, partial(mean, reduction="sum")
    )
    batches = list(sentences(3, 12, 1, 7))
    engine, model = tagger(loss_fn=loss_fn, weight=count_tokens, accumulate=4, split=split)
    gradients, losses = [], []
    engine.on(Events.GRADIENTS_READY)(
        lambda state: gradients.extend(each.grad.clone() for each in model.parameters())
    )
    engine.on(Events.ITERATION_COMPLETED)(lambda state: losses.append(state.metrics["loss"]))
    state = engine.run(batches, max_epochs=1)
    loss, expected = whole(batches)
    loss.backward()
    for ours, theirs in zip(gradients, expected.parameters(), strict=True):
        assert torch.allclose(ours, theirs.grad, rtol=0, atol=1e-12)
    assert state.step == 1
    assert state.output.weight == 7
    for batch, found in zip(batches, losses, strict=True):  # a mean, also where the loss is a sum
        assert found.item() == pytest.approx(whole([batch])[0].item(), abs=1e-12)


@pytest.mark.parametrize("split", [None, 1])
def test_the_loss_of_an_evaluation_is_the_mean_over_its_tokens(split):
    batches = list(sentences(3, 12, 0, 7))
    engine, _ = tagger(weight=count_tokens, split=split)
    engine.add(Validate(batches), Average("loss"))
    expected = whole(batches)[0].item()
    assert engine.evaluate(batches).metrics["loss"].item() == pytest.approx(expected, abs=1e-12)
    optimizer = engine.objects["optimizer"]
    optimizer.param_groups[0]["lr"] = 0.0
    metrics = engine.run(batches, max_epochs=1).metrics
    assert metrics["val/loss"].item() == pytest.approx(expected, abs=1e-12)
    assert metrics["loss/epoch"].item() == pytest.approx(expected, abs=1e-12)


def test_a_batch_without_any_token_moves_nothing_and_its_loss_is_zero():
    engine, model = tagger(weight=count_tokens)
    engine.add(NonFiniteGuard("raise"))
    before = [each.clone() for each in model.parameters()]
    assert engine.run(sentences(0), max_epochs=1).metrics["loss"] == 0
    assert all(torch.equal(*each) for each in zip(model.parameters(), before, strict=True))


def test_the_weight_may_be_any_number_and_an_optimizer_with_a_closure_knows_it():
    batches = list(sentences(3, 12))

    def trained(*, accumulate, data, weight):
        model = Tagger().double()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        engine = supervised(model, optimizer, accumulate=accumulate, weight=weight)
        engine.run(data, max_epochs=1)
        return list(model.parameters())

    together = {name: torch.cat([each[name] for each in batches]) for name in batches[0]}
    model = Tagger()
    with pytest.raises(ValueError, match="split= does not go with LBFGS"):
        supervised(model, torch.optim.LBFGS(model.parameters()), split=2)
    ours = trained(accumulate=2, data=batches, weight=lambda o: int(count_tokens(o)))
    theirs = trained(accumulate=1, data=[together], weight=count_tokens)
    for mine, expected in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, expected, rtol=0, atol=1e-9)


def test_labels_that_do_not_count_are_told_of_once_unless_it_is_said_what_counts():
    engine, _ = tagger()
    with pytest.warns(UserWarning, match=r"some labels are -100.*weight=count_next_tokens"):
        engine.run(sentences(3, 12, 5), max_epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.run(sentences(12, 12), max_epochs=1)
        tagger(weight=count_tokens)[0].run(sentences(3), max_epochs=1)
        tagger(weight=1)[0].run(sentences(3), max_epochs=1)


def test_labels_of_padding_that_count_are_told_of():
    (batch,) = sentences(12)
    padded = {**batch, "attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2])}
    with pytest.warns(UserWarning, match=r"labels\[attention_mask == 0\] = -100"):
        tagger(weight=count_tokens)[0].run([padded], max_epochs=1)
    padded["labels"] = batch["labels"].masked_fill(padded["attention_mask"] == 0, -100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger(weight=count_tokens)[0].run([padded, batch], max_epochs=1)


def test_a_loss_that_is_a_sum_is_told_of_unless_it_is_said_over_what():
    def trained(**arguments):
        model = Pair()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = supervised(model, optimizer, torch.nn.MSELoss(reduction="sum"), **arguments)
        return engine.run([((torch.ones(4), torch.ones(4)), torch.zeros(4))], max_epochs=1)

    with pytest.warns(UserWarning, match="loss_fn is a sum over the batch") as caught:
        assert trained().metrics["loss"] == 36
    assert caught[0].filename == __file__
    assert trained(weight=1).metrics["loss"] == 36
    assert trained(weight=lambda output: output.target.numel()).metrics["loss"] == 9


def test_the_weight_of_a_batch_is_one_number():
    engine, _ = tagger(weight=lambda output: (output.target != -100).sum(1))
    with pytest.raises(ValueError, match=r"weight= gave a tensor of shape \(2,\); it needs one"):
        engine.run(sentences(12), max_epochs=1)


def test_parts_of_a_batch_by_name_are_cut_and_joined():
    (batch,) = sentences(12)
    (ours, model), (theirs, _) = tagger(split=1), tagger()
    output, expected = (each.run([batch], max_epochs=1).output for each in (ours, theirs))
    assert model.seen == [1, 1]
    assert torch.equal(output.prediction, expected.prediction)
    assert torch.equal(output.target, expected.target)


def test_parts_of_an_output_without_logits_are_joined_too():
    class Plain(torch.nn.Module):
        def forward(self, x):
            return Made(loss=None, logits=x, states=x)

    engine = supervised(Plain(), split=2, prepare_batch=lambda x: (x, None))
    assert engine.evaluate([torch.arange(5)]).output.prediction.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_what_goes_by_name_is_computed_in_the_precision_asked_for(precision):
    model = Tagger(returns=dict)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, precision=precision, weight=count_tokens)
    state = engine.run(sentences(*[5, 12] * 4), max_epochs=1)  # some overflow at first, in fp16
    assert (
        state.output.prediction.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    )
    assert state.step > 0


def test_what_goes_by_name_is_moved_to_the_device():
    model = Tagger(returns=dict).to("meta")
    engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.1), device="meta")
    for kind in (dict, UserDict):
        output = engine.evaluate([kind(batch) for batch in sentences(12)]).output
        assert output.prediction.device.type == output.target.device.type == "meta"
    moved = to_device({"other": UserDict(x=torch.ones(1))}, "meta")
    assert moved["other"]["x"].device.type == "meta"


def test_an_optimizer_of_parameters_that_a_device_replaces_is_refused():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"write model.to\(device\) above the line that makes"):
        supervised(model, optimizer, mse_loss, device="meta")
    supervised(torch.nn.Linear(2, 1), None, mse_loss, device="meta")
    frozen, head = torch.nn.Linear(2, 2).requires_grad_(False), torch.nn.Linear(2, 1, device="meta")
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)  # of what stays, such as adapters
    supervised(torch.nn.Sequential(frozen, head), optimizer, mse_loss, device="meta")


def test_without_targets_there_are_predictions_and_no_loss():
    model = torch.nn.Linear(4, 1)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss)
    engine.add(Collect(), Metrics({"mse": mse_loss}), Average("loss"))
    x = torch.randn(5, 4)
    for data in ([x], [[x]], [(x, None)], DataLoader(TensorDataset(x), 3)):
        state = engine.evaluate(data)
        assert torch.allclose(state.collected["outputs"]["prediction"], model(x))
        assert state.collected["outputs"].keys() == {"prediction"}
        assert state.metrics == {}
    engine, model = tagger(weight=count_tokens)
    state = engine.evaluate([{"input_ids": torch.tensor([[1, 2]])}])
    assert state.output.prediction.shape == (1, 2, 3)
    assert (state.output.loss, state.metrics) == (None, {})


def test_training_without_a_target_that_the_loss_needs_says_what_a_batch_is():
    model = torch.nn.Linear(4, 1)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss)
    with pytest.raises(TypeError, match="a batch to train on that is a Tensor, without a target"):
        engine.run([torch.ones(2, 4)], max_epochs=1)
    engine, _ = tagger()
    with pytest.raises(ValueError, match=r"returned a Made, without a 'loss'.*with 'labels'"):
        engine.run([{"input_ids": torch.tensor([[1]])}], max_epochs=1)
    plain = supervised(model, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(ValueError, match=r"returned a Tensor, without a 'loss'. Give loss_fn="):
        plain.run([(torch.ones(2, 4), torch.ones(2, 1))], max_epochs=1)


class OwnLoss(torch.nn.Module):
    """Returns its loss, as models of diffusion do: the mean of squares of what it is given."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return (self.scale * x).square().mean()


def without_target(**arguments):
    model = OwnLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return supervised(model, optimizer, lambda output, target: output, **arguments), model


FORMS = {
    "tensor": lambda x: x,
    "tuple of one": lambda x: (x,),
    "pair with None": lambda x: (x, None),
    "names": lambda x: {"x": x},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("more", [{}, {"precision": "bf16"}, {"accumulate": 2}], ids=str)
def test_a_loss_without_a_target_is_trained_on_and_its_mean_counts_samples_by_the_input(form, more):
    engine, model = without_target(**more)
    engine.add(Average("loss"))
    batches = [form(torch.ones(6, 1)), form(3 * torch.ones(2, 1))]
    assert engine.evaluate(batches).metrics["loss"] == 3.0  # (6 * 1 + 2 * 9) / 8
    state = engine.run(batches[:1], max_epochs=1)
    assert (state.step, state.output.samples, state.output.target) == (1, 6, None)
    assert model.scale.item() == pytest.approx(0.8)  # 1 - 0.1 * 2
    assert engine.evaluate(batches).metrics["loss"].item() == pytest.approx(0.64 * 3.0, rel=0.01)


def test_a_loss_without_a_target_is_taken_in_parts_too():
    batches = [torch.ones(6, 1), 3 * torch.ones(2, 1)]
    engine, model = without_target(split=2)
    assert engine.evaluate(batches).metrics["loss"] == 3.0
    assert engine.run(batches[:1], max_epochs=1).output.samples == 6
    assert model.scale.item() == pytest.approx(0.8)


@pytest.mark.parametrize(
    "loss_fn",
    [
        mse_loss,
        cross_entropy,
        torch.nn.MSELoss(),
        lambda output, target: mse_loss(output[target != 0].sum(), (target != 0).sum()),
        lambda output, target: (output - target["mean"]).square().mean(),
    ],
    ids=["function", "of classes", "module", "compares", "looks up"],
)
def test_an_evaluation_without_targets_has_no_loss_if_its_function_needs_one(loss_fn):
    model = torch.nn.Linear(4, 1)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), loss_fn)
    state = engine.evaluate([torch.ones(2, 4)])
    assert (state.output.loss, state.metrics) == (None, {})
    assert state.output.prediction.shape == (2, 1)


def test_an_error_of_a_loss_without_a_target_is_no_lack_of_one():
    model = torch.nn.Linear(4, 1)
    loss_fn = lambda output, _: (output @ output).mean()  # noqa: E731
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), loss_fn)
    for call in (engine.evaluate, lambda data: engine.run(data, max_epochs=1)):
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            call([torch.ones(2, 4)])


def test_targets_that_are_a_mapping_for_each_sample_are_counted_by_sample():
    def boxes(*counts):
        return [{"boxes": torch.ones(count, 4)} for count in counts]

    def loss(output, targets):
        return output.mean() * 0 + sum(each["boxes"].sum() for each in targets) / len(targets)

    engine = supervised(torch.nn.Linear(1, 1), loss_fn=loss)
    batches = [(torch.ones(3, 1), boxes(1, 1, 1)), (torch.ones(1, 1), boxes(5))]
    assert engine.evaluate(batches).metrics["loss"] == (3 * 4 + 20) / 4


def test_to_evaluate_needs_no_optimizer_and_to_train_says_so():
    model = torch.nn.Linear(4, 1)
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    engine = supervised(model).add(Collect())
    state = engine.evaluate([(x, y)])
    assert engine.objects == {"model": model}
    assert torch.allclose(state.collected["outputs"]["prediction"], model(x))
    assert state.metrics == {}
    measured = supervised(model, loss_fn=mse_loss).evaluate([(x, y)]).metrics["loss"]
    assert torch.allclose(measured.float(), mse_loss(model(x), y))
    with pytest.raises(ValueError, match=r"only evaluates; to train, .* supervised\(model, optim"):
        engine.run([(x, y)], max_epochs=1)
    with pytest.raises(ValueError, match="accumulate=2 is for training, which needs an optimizer"):
        supervised(model, accumulate=2)


def test_an_update_takes_the_loss_by_tokens_too():
    batches = list(sentences(3, 12))
    model = Tagger().double()
    update = Update(torch.optim.SGD(model.parameters(), lr=0.5), model=model, accumulate=2)
    supervised(model, update, weight=count_tokens).run(batches, max_epochs=1)
    loss, expected = whole(batches)
    loss.backward()
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.allclose(ours, theirs - 0.5 * theirs.grad, rtol=0, atol=1e-12)


def test_next_tokens_are_those_after_the_first_of_each_row():
    (batch,) = sentences(8)
    output = supervised(Tagger().double(), weight=count_next_tokens).evaluate([batch]).output
    assert output.weight == 8 - 2
    assert math.isfinite(output.loss)


@pytest.mark.parametrize("backend", [None, "eager"])
def test_a_named_input_that_the_model_does_not_take_is_named(backend):
    model = Tagger()
    model = model if backend is None else torch.compile(model, backend=backend)
    batch = {"input_ids": torch.zeros(2, 3, dtype=torch.long), "lengths": torch.ones(2)}
    with pytest.raises(TypeError) as caught:
        supervised(model).evaluate([batch])
    notes = "\n".join(caught.value.__notes__)
    assert "forward takes input_ids, attention_mask, labels, without 'lengths'" in notes
    assert "prepare_batch=" in notes


def test_a_weight_that_is_no_function_and_no_number_is_refused_at_once():
    with pytest.raises(TypeError, match="weight='tokens'.*count_tokens"):
        supervised(Tagger(), weight="tokens")


def test_an_error_of_the_loss_function_says_what_it_was_given():
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.cross_entropy)
    with pytest.raises(RuntimeError) as caught:
        engine.run([(torch.ones(8, 4), torch.ones(8))], max_epochs=1)
    expected = "in loss_fn, given a prediction float32[8, 3] and a target float32[8]"
    assert caught.value.__notes__[0] == expected
