"""Optimizers with two modes: the weights to train, and the weights to evaluate."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import (
    EMA,
    Checkpoint,
    Export,
    NonFiniteGuard,
    RestoreBest,
    Validate,
    best,
    checkpoints,
    find_lr,
)


class Averaging(torch.optim.Optimizer):
    """SGD without a schedule, Defazio et al. (2024): y is trained; x, the mean of z, is meant."""

    is_flag_saved = True

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr, "k": 0, "train_mode": False})
        self.is_in_training = False

    def _is_in(self, group):
        return group["train_mode"] if self.is_flag_saved else self.is_in_training

    @torch.no_grad()
    def _switch(self, training):
        for group in self.param_groups:
            if self._is_in(group) != training:
                weight = 0.1 if training else 1 - 1 / 0.9
                for each in group["params"]:
                    if "z" in self.state[each]:
                        each.lerp_(self.state[each]["z"], weight)
                if self.is_flag_saved:
                    group["train_mode"] = training
        self.is_in_training = training

    def train(self):
        self._switch(True)

    def eval(self):
        self._switch(False)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if not self._is_in(group):
                raise RuntimeError("train() was not called")
            group["k"] += 1
            for each in group["params"]:
                if each.grad is not None:
                    state = self.state[each]
                    z = state.setdefault("z", each.clone())
                    each.lerp_(z, 1 / group["k"])
                    each.add_(each.grad, alpha=group["lr"] * (0.9 * (1 - 1 / group["k"]) - 1))
                    z.sub_(each.grad, alpha=group["lr"])


class WithAttribute(Averaging):
    """One whose mode is in no `state_dict`, as that of schedulefree's wrapper."""

    is_flag_saved = False


class Swapping(Averaging):
    """One that keeps the weights to train beside those to evaluate, as SPlus does."""

    @torch.no_grad()
    def _switch(self, training):
        for group in self.param_groups:
            if group["train_mode"] != training:
                for each in group["params"]:
                    state = self.state[each]
                    if not training and "z" in state:
                        state["kept"] = each.clone()
                        each.copy_(state["z"])
                    elif "kept" in state:
                        each.copy_(state.pop("kept"))
                group["train_mode"] = training


def free(kind):
    return lambda parameters: getattr(pytest.importorskip("schedulefree"), kind)(
        parameters, lr=0.05
    )


KINDS = [
    pytest.param(Averaging, id="Averaging"),
    pytest.param(WithAttribute, id="WithAttribute"),
    pytest.param(Swapping, id="Swapping"),
    *(
        pytest.param(free(kind), id=kind)
        for kind in (
            "AdamWScheduleFree",
            "SGDScheduleFree",
            "RAdamScheduleFree",
            "AdamWScheduleFreeReference",
        )
    ),
]


def batches(seed, number):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(8, 4, generator=generator), torch.randn(8, 1, generator=generator))
        for _ in range(number)
    ]


TRAIN, VALID = batches(0, 6), batches(1, 3)
LOSS = nn.functional.mse_loss
AFTER_EACH = Events.ITERATION_COMPLETED(every=3)


def build(kind):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    model[0].bias.requires_grad_(False)
    return model, kind(model.parameters())


def by_hand(kind, epochs=3):
    """The model that was never evaluated, and the losses and weights of copies that were."""
    model, optimizer = build(kind)
    optimizer.train()
    losses, points = [], []
    for _ in range(epochs):
        for inputs, targets in TRAIN:
            optimizer.zero_grad()
            LOSS(model(inputs), targets).backward()
            optimizer.step()
        other, points_of = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict())
        evaluated = kind(other.parameters())
        evaluated.train()
        evaluated.load_state_dict(points_of)
        evaluated.eval()
        with torch.no_grad():
            means = [LOSS(other(inputs), targets) for inputs, targets in VALID]
        losses.append(torch.stack(means).mean().item())
        points.append(copy.deepcopy(other.state_dict()))
    return model, optimizer, losses, points


def equal(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )


def same_states(first, second):
    """True for equal contents of two optimizers."""
    flat, spec = torch.utils._pytree.tree_flatten(first.state_dict())
    other, other_spec = torch.utils._pytree.tree_flatten(second.state_dict())
    return spec == other_spec and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(flat, other, strict=True)
    )


@pytest.mark.quick(kind=4)
@pytest.mark.parametrize("kind", KINDS)
def test_evaluations_are_of_the_other_weights_and_the_training_is_that_of_no_evaluation(
    kind, tmp_path
):
    model, optimizer = build(kind)
    engine, losses = supervised(model, optimizer, LOSS), []
    engine.add(Validate(VALID), Validate(VALID, name="often", when=AFTER_EACH))
    engine.add(Export(tmp_path / "export"), Checkpoint(tmp_path / "run"))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: losses.append(float(state.metrics["val/loss"])))
    engine.run(TRAIN, max_epochs=3)  # which has called optimizer.train()

    expected, other, at_each, points = by_hand(kind)
    assert losses == pytest.approx(at_each, rel=1e-6)
    assert equal(model.state_dict(), expected.state_dict())
    assert same_states(optimizer, other)
    (exported,) = (tmp_path / "export").glob("*/*.safetensors")
    assert equal(load_file(exported), points[-1])
    saved = checkpoints(tmp_path / "run").latest()
    assert equal(saved.state_dict("model"), expected.state_dict())
    after = engine.evaluate(VALID, checkpoint="latest")
    assert float(after.metrics["loss"]) == losses[-1]
    assert equal(model.state_dict(), expected.state_dict())
    assert same_states(optimizer, other)


@pytest.mark.quick(kind=3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_validates_and_resumes_is_the_run_without_either(kind, tmp_path):
    for stop in (8, 12, None):  # inside an epoch, and at its end
        model, optimizer = build(kind)
        engine = supervised(model, optimizer, LOSS)
        engine.add(Validate(VALID, when=AFTER_EACH), Checkpoint(tmp_path, resume=True))
        engine.run(TRAIN, max_epochs=3, max_iterations=stop or 18)
    expected, other, *_ = by_hand(kind)
    assert equal(model.state_dict(), expected.state_dict())
    assert same_states(optimizer, other)


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_weights_are_those_that_were_evaluated(kind):
    model, optimizer = build(kind)
    engine, losses = supervised(model, optimizer, LOSS), []
    engine.add(Validate(VALID), RestoreBest("val/loss"))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: losses.append(float(state.metrics["val/loss"])))
    state = engine.run(TRAIN, max_epochs=2)
    points = by_hand(kind, 3)[3]
    assert equal(model.state_dict(), points[losses.index(min(losses))])
    assert float(engine.evaluate(VALID).metrics["loss"]) == min(losses)

    engine.run(TRAIN, max_epochs=3, state=state)  # which goes on from the last weights
    assert equal(model.state_dict(), points[losses.index(min(losses))])
    assert losses == pytest.approx(by_hand(kind, 3)[2], rel=1e-6)


def test_a_mode_that_the_script_has_chosen_stays_as_it_is():
    model, optimizer = build(Averaging)
    engine = supervised(model, optimizer, LOSS)
    engine.run(TRAIN, max_epochs=1)
    first = float(engine.evaluate(VALID).metrics["loss"])
    assert optimizer.param_groups[0]["train_mode"]
    optimizer.eval()
    weights = copy.deepcopy(model.state_dict())
    assert float(engine.evaluate(VALID).metrics["loss"]) == first
    assert not optimizer.param_groups[0]["train_mode"]
    assert equal(model.state_dict(), weights)


def test_functions_that_switch_by_themselves_change_nothing():
    model, optimizer = build(Averaging)
    engine = supervised(model, optimizer, LOSS)
    optimizer.train()
    engine.evaluation.on(Events.STARTED)(lambda state: optimizer.eval())
    engine.evaluation.on(Events.CLOSED)(lambda state: optimizer.train())
    engine.add(Validate(VALID, when=AFTER_EACH))
    state = engine.run(TRAIN, max_epochs=3)
    expected, _, losses, _ = by_hand(Averaging)
    assert equal(model.state_dict(), expected.state_dict())
    assert float(state.metrics["val/loss"]) == pytest.approx(losses[-1], rel=1e-6)


def test_an_evaluation_that_fails_leaves_the_training_as_it_was():
    model, optimizer = build(Averaging)
    engine = supervised(model, optimizer, LOSS)

    @engine.on(AFTER_EACH)
    def look(state):
        with pytest.raises(RuntimeError):
            engine.evaluate([*VALID, (torch.ones(1, 7), torch.ones(1, 1))], parent=state)

    @engine.evaluation.on(Events.ITERATION_COMPLETED(at=2))
    def look_again(state):
        if state.name != "inner":
            engine.evaluate(VALID, name="inner", parent=state)

    engine.run(TRAIN, max_epochs=3)
    expected, other, *_ = by_hand(Averaging)
    assert equal(model.state_dict(), expected.state_dict())
    assert same_states(optimizer, other)


@pytest.mark.parametrize("setting", [{"accumulate": 2}, {"precision": "fp16"}])
def test_windows_scalers_and_averages_train_as_without_an_evaluation(setting):
    found = []
    for evaluates in (True, False):
        model, optimizer = build(Averaging)
        engine = supervised(model, optimizer, LOSS, **setting)
        engine.add(EMA(0.9), NonFiniteGuard("skip"))
        if evaluates:
            engine.add(Validate(VALID, when=Events.ITERATION_COMPLETED(every=1)))
            engine.add(Validate(VALID, name="ema", weights="ema", when=AFTER_EACH))
        engine.run(TRAIN, max_epochs=2)
        found.append((model.state_dict(), engine.objects["ema"].state_dict(), optimizer))
    assert equal(found[0][0], found[1][0])
    assert equal(found[0][1], found[1][1])
    assert same_states(found[0][2], found[1][2])


def test_lent_weights_are_evaluated_as_they_are():
    model, optimizer = build(Averaging)
    engine = supervised(model, optimizer, LOSS).add(EMA(0.9))
    engine.run(TRAIN, max_epochs=2)
    lent = float(engine.evaluate(VALID, weights="ema").metrics["loss"])
    with engine.using("ema"):
        assert float(engine.evaluate(VALID).metrics["loss"]) == lent


def test_one_of_several_optimizers_and_one_in_a_step_of_its_own_are_switched():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    first, second = Averaging(model[0].parameters()), torch.optim.SGD(model[1].parameters(), 0.1)
    update, losses = Update([first, second]), []

    def step(state, batch):
        loss = LOSS(model(batch[0]), batch[1])
        if state.training:
            update(state, loss)
        else:
            losses.append(first.param_groups[0]["train_mode"])

    objects = {"model": model, "first": first, "second": second}
    Engine(step, update, Validate(VALID), objects=objects).run(TRAIN, max_epochs=1)
    assert losses == [False] * 3
    assert first.param_groups[0]["train_mode"]
    Engine(step, update, Validate(VALID), objects={"model": model}).run(TRAIN, max_epochs=1)
    assert losses == [False] * 6


def test_an_attribute_that_cannot_be_called_is_no_mode():
    model, optimizer = nn.Linear(4, 1), None
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.train, optimizer.eval = True, False
    supervised(model, optimizer, LOSS).add(Validate(VALID)).run(TRAIN, max_epochs=1)


def test_a_search_for_a_learning_rate_leaves_the_mode_as_it_was():
    model, optimizer = build(Averaging)
    engine = supervised(model, optimizer, LOSS)
    before = copy.deepcopy(model.state_dict())
    find_lr(engine, TRAIN, steps=8)
    assert equal(model.state_dict(), before)
    assert not optimizer.state
    assert not optimizer.param_groups[0]["train_mode"]


def test_the_best_checkpoint_goes_on_from_the_weights_to_train(tmp_path):
    model, optimizer = build(Averaging)
    engine = supervised(model, optimizer, LOSS)
    engine.add(Validate(VALID), Checkpoint(tmp_path, keep=best(1, "val/loss")))
    state = engine.run(TRAIN, max_epochs=3)
    found = engine.evaluate(VALID, checkpoint="best")
    assert float(found.metrics["loss"]) == checkpoints(tmp_path)[0].manifest.metrics["val/loss"]
    assert state.epoch == 3


def test_an_engine_without_the_optimizer_says_which_weights_a_checkpoint_holds(tmp_path, caplog):
    model, optimizer = build(Averaging)
    engine = supervised(model, optimizer, LOSS)
    engine.add(Export(tmp_path / "export"), Checkpoint(tmp_path / "run")).run(TRAIN, max_epochs=1)
    alone = supervised(build(Averaging)[0], None, LOSS).add(Checkpoint(tmp_path / "run"))
    alone.evaluate(VALID, checkpoint=tmp_path / "export")
    assert "weights that optimizer trains" not in caplog.text
    alone.evaluate(VALID, checkpoint="latest")
    assert "weights that optimizer trains, not those to evaluate" in caplog.text
