"""The engine of the usual case, held against a loop written by hand."""

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from camshaft import Engine, Events, State, Update, supervised


def build(**arguments):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return supervised(model, optimizer, cross_entropy, **arguments), model, optimizer


def batches(count=6, size=5):
    generator = torch.Generator().manual_seed(7)
    return [
        (torch.randn(size, 4, generator=generator), torch.randint(3, (size,), generator=generator))
        for _ in range(count)
    ]


def test_training_equals_the_loop_written_by_hand_to_the_last_bit():
    engine, model, _ = build()
    engine.run(batches(), max_epochs=3)
    _, expected, optimizer = build()
    for _ in range(3):
        for input, target in batches():
            optimizer.zero_grad()
            cross_entropy(expected(input), target).backward()
            optimizer.step()
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_output_holds_loss_prediction_and_target_without_gradients():
    engine, _, _ = build()
    (batch,) = batches(1)
    output = engine.run([batch], max_epochs=1).output
    assert output.target is batch[1]
    assert output.prediction.shape == (5, 3)
    assert not output.prediction.requires_grad
    assert not output.loss.requires_grad


def test_the_loss_of_the_batch_is_a_metric_that_stays_a_tensor():
    engine, _, _ = build()
    losses = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: losses.append(state.metrics["loss"]))
    engine.run(batches(3), max_epochs=1)
    assert all(isinstance(loss, torch.Tensor) and loss.ndim == 0 for loss in losses)
    assert len({loss.item() for loss in losses}) == 3


def test_the_loss_of_an_evaluation_is_the_mean_over_its_samples():
    engine = supervised(
        torch.nn.Identity(),
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=0.1),
        lambda prediction, target: prediction.mean(),
    )
    sizes = [(0.7, 256), (0.8, 256), (0.9, 10)]
    data = [(torch.full((size,), value), torch.zeros(size)) for value, size in sizes]
    loss = engine.evaluate(data).metrics["loss"]
    assert loss.item() == pytest.approx((0.7 * 256 + 0.8 * 256 + 0.9 * 10) / 522, abs=1e-6)
    assert round(loss.item(), 4) == 0.7529


def test_an_update_may_stand_in_the_place_of_the_optimizer():
    (whole, expected, _), (_, model, optimizer) = build(accumulate=4), build()
    update = Update(optimizer, model=model, accumulate=4)
    engine = supervised(model, update, cross_entropy)
    assert engine.handlers["Update"] is update
    assert engine.objects["optimizer"] is optimizer
    assert engine.run(batches(6), max_epochs=2).step == whole.run(batches(6), max_epochs=2).step
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(ValueError, match="accumulate=2 is a setting of the Update that was given"):
        supervised(model, update, cross_entropy, accumulate=2)
    with pytest.raises(ValueError, match="updates no parameter of this model"):
        supervised(torch.nn.Linear(4, 3), update, cross_entropy)


def test_the_engine_knows_what_to_save():
    engine, model, optimizer = build()
    assert engine.objects == {"model": model, "optimizer": optimizer}
    assert set(build(precision="fp16")[0].objects) == {"model", "optimizer", "scaler"}


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_precision_is_that_of_autocast_and_weights_stay_in_float32(precision, dtype):
    engine, model, _ = build(precision=precision)
    seen = []
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    state = engine.run(batches(2), max_epochs=1)
    engine.evaluate(batches(1))
    assert seen == [getattr(torch, dtype)] * 3
    assert state.step == 2
    assert model[0].weight.dtype == torch.float32


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="precision='half': needs one of fp32, bf16, fp16"):
        build(precision="half")
    with pytest.raises(ValueError, match="did you mean 'bf16'"):
        build(precision="bf-16")


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({"input": 1}, "a pair of input and target. Give prepare_batch="),
        ((1, 2, 3), "a batch that is a tuple of 3; it needs a pair"),
    ],
)
def test_a_batch_that_is_no_pair_is_an_error_that_names_the_remedy(batch, says):
    engine, _, _ = build()
    with pytest.raises(TypeError, match=says):
        engine.run([batch], max_epochs=1)


def test_prepare_batch_makes_the_pair():
    engine, _, _ = build(prepare_batch=lambda batch: (batch["x"], batch["y"]))
    data = [{"x": input, "y": target} for input, target in batches(2)]
    assert engine.run(data, max_epochs=1).step == 2


def test_a_model_left_in_evaluation_mode_is_warned_of_and_left_so():
    engine, model, _ = build()
    model.eval()
    with pytest.warns(UserWarning, match="in evaluation mode as training starts") as caught:
        engine.run(batches(1), max_epochs=1)
    assert caught[0].filename == __file__
    assert not model.training


def test_frozen_parts_stay_frozen():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2).eval())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, mse_loss)
    engine.run([(torch.randn(4, 2), torch.zeros(4, 2))] * 3, max_epochs=1)
    assert torch.equal(model[1].running_mean, torch.zeros(2))
    assert not model[1].training


def test_a_state_is_a_plain_value_that_reads_well():
    assert repr(State(iteration=3, epoch=1)).startswith("State(iteration=3, step=0, epoch=1")
    assert len(repr(Engine(lambda state, batch: batch).run("abc", max_epochs=1))) < 400


class Centred(torch.nn.Module):
    """A loss that learns: the mean of what it has seen so far."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(3))

    def forward(self, prediction, target):
        if self.training:
            self.centre.lerp_(prediction.detach().mean(0), 0.1)
        return cross_entropy(prediction - self.centre, target)


def test_a_loss_that_is_a_module_goes_to_the_device():
    model = torch.nn.Linear(4, 3, device="meta")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weighted = torch.nn.CrossEntropyLoss(weight=torch.ones(3))
    assert set(supervised(model, optimizer, weighted).objects) == {"model", "optimizer"}
    assert weighted.weight.device.type == "meta"


def test_a_loss_that_learns_is_saved_and_left_alone_by_evaluation():
    model, loss_fn = torch.nn.Linear(4, 3), Centred()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, loss_fn)
    assert engine.objects["loss_fn"] is loss_fn
    engine.run(batches(3), max_epochs=1)
    centre = loss_fn.centre.clone()
    assert centre.any()
    engine.evaluate(batches(3))
    assert torch.equal(loss_fn.centre, centre)


def test_a_batch_without_a_loss_is_skipped_in_training_and_in_evaluation():
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(
        model,
        optimizer,
        lambda prediction, target: cross_entropy(prediction, target) if target.sum() else None,
    )
    data = batches(3)
    data[1] = (data[1][0], torch.zeros_like(data[1][1]))
    losses = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: losses.append(state.output.loss))
    assert engine.run(data, max_epochs=1).step == 2
    assert [loss is None for loss in losses] == [False, True, False]
    assert engine.evaluate(data).metrics["loss"].isfinite()
    assert "loss" not in engine.evaluate(data[1:2]).metrics


@pytest.mark.parametrize(
    ("loss_fn", "says"),
    [
        (lambda p, t: cross_entropy(p, t, reduction="none"), r"a tensor of shape \(5,\)"),
        (lambda p, t: 0.5, "returned 0.5"),
    ],
)
def test_a_loss_that_is_none_is_told_of_with_what_it_is(loss_fn, says):
    model = torch.nn.Linear(4, 3)
    engine = supervised(model, torch.optim.SGD(model.parameters()), loss_fn)
    with pytest.raises(ValueError, match=f"{says}.*; it needs a scalar tensor"):
        engine.run(batches(1), max_epochs=1)


class Net(torch.nn.Linear):
    """A model of one's own."""


NET = Net(4, 3)
SGD = torch.optim.SGD(NET.parameters())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((NET, SGD, torch.nn.MSELoss), r"loss_fn is the class MSELoss; .*: nn\.MSELoss\(\)$"),
        ((Net, SGD, mse_loss), r"model is the class Net; .*: Net\(\.\.\.\)$"),
        (
            (NET, torch.optim.SGD, mse_loss),
            r"optimizer is the class SGD; .*: torch\.optim\.SGD\(model\.parameters\(\), lr=\.",
        ),
        ((SGD, NET, mse_loss), "a SGD as its model and a Net as its optimizer; the order is super"),
        (
            (NET, mse_loss, SGD),
            "the function mse_loss as its optimizer and a SGD as its loss_fn; the order is super",
        ),
        ((mse_loss, SGD, NET), "got the function mse_loss as its model; it needs a Module"),
        (
            (NET, "adam", mse_loss),
            r"got 'adam' as its optimizer; it needs a torch\.optim\.Optimizer",
        ),
        ((NET, SGD, "mse"), "got 'mse' as its loss_fn; it needs a function of the model's output"),
    ],
)
def test_what_is_not_made_or_in_a_wrong_place_is_told_with_what_to_write(arguments, says):
    with pytest.raises(TypeError, match=says):
        supervised(*arguments)
