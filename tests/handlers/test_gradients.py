"""The norm of gradients as a metric, and gradient clipping."""

import weakref
from functools import partial

import pytest
import torch

from camshaft import Engine, EventEnum, Events, State, Update, supervised
from camshaft.engine.update import Gradients
from camshaft.handlers import EMA, ClipGradNorm, ClipGradValue, GradNorm, NonFiniteGuard, SpikeGuard
from camshaft.handlers.gradients import _compare


class Gan(EventEnum):
    CRITIC_UPDATED = "critic_updated"


def run(*handlers, update_both=False):
    weights, others = (torch.nn.Parameter(torch.zeros(2)) for _ in "ab")
    optimizer, other = (torch.optim.SGD([each], lr=1.0) for each in (weights, others))
    update, update_other = Update(optimizer), Update(other, event=Gan.CRITIC_UPDATED)

    def process(state, batch):
        update(state, (torch.tensor([3.0, 4.0]) * weights).sum())
        if update_both:
            update_other(state, (torch.tensor([6.0, 8.0]) * others).sum())

    made = [handler(optimizer, other) if callable(handler) else handler for handler in handlers]
    state = Engine(process, *made).run([1], max_epochs=1)
    return {name: value.item() for name, value in state.metrics.items()}, weights.tolist()


def test_the_norm_is_a_metric_and_gradients_stay_as_they_are():
    assert run(GradNorm()) == ({"grad_norm": 5.0}, [-3.0, -4.0])


def test_it_is_the_norm_before_clipping_wherever_it_is_attached():
    for handlers in ([ClipGradNorm(1.0), GradNorm()], [GradNorm(), ClipGradNorm(1.0)]):
        metrics, weights = run(*handlers)
        assert metrics == {"grad_norm": 5.0}
        assert weights == pytest.approx([-0.6, -0.8])


def test_clipping_twice_at_the_same_norm_is_clipping_once():
    once = run(ClipGradNorm(1.0))[1]
    with pytest.warns(UserWarning, match="ClipGradNorm is attached already"):
        twice = run(ClipGradNorm(1.0), ClipGradNorm(1.0))[1]
    assert once == pytest.approx(twice)


def test_several_optimizers_have_metrics_of_their_own_by_name():
    metrics, _ = run(
        lambda optimizer, other: GradNorm(optimizer=optimizer, name="generator"),
        lambda optimizer, other: ClipGradNorm(100.0, optimizer=other, name="critic"),
        update_both=True,
    )
    assert metrics == {"grad_norm/generator": 5.0, "grad_norm/critic": 10.0}


def test_other_norms_can_be_chosen():
    assert run(GradNorm(float("inf")))[0] == {"grad_norm": 4.0}


def test_ranks_that_disagree_are_told_who_has_what():
    nan = float("nan")
    _compare([1.0, 1.0 + 1e-7], 3)
    _compare([nan, nan], 3)
    with pytest.raises(RuntimeError, match="at step 3: their norm is rank 0 has 1, rank 1 has 1.1"):
        _compare([1.0, 1.1], 3)
    with pytest.raises(RuntimeError, match="rank 1 has nan"):
        _compare([1.0, nan], 3)


def test_checking_alone_finds_no_fault():
    assert run(GradNorm(check=True))[0] == {"grad_norm": 5.0}


def two_weights():
    weights = torch.nn.Parameter(torch.zeros(2))
    return weights, torch.optim.SGD([weights], lr=1.0)


def clipped(handler, gradient=(3.0, 4.0), accumulate=1, batches=1, scaler=None):
    weights, optimizer = two_weights()
    update = Update(optimizer, accumulate=accumulate, scaler=scaler)

    def process(state, batch):
        update(state, (weights * torch.tensor(gradient)).sum())

    state = Engine(process, handler).run(range(batches), max_epochs=1)
    return weights.tolist(), state


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("scale", [None, 1024.0])
def test_the_norm_is_that_of_the_whole_window_before_clipping_and_unscaled(accumulate, scale):
    scaler = None if scale is None else torch.amp.GradScaler("cpu", init_scale=scale)
    weights, state = clipped(
        ClipGradNorm(1.0), accumulate=accumulate, batches=accumulate, scaler=scaler
    )
    assert weights == pytest.approx([-0.6, -0.8])
    assert state.metrics["grad_norm"].item() == 5.0


def test_values_are_cut():
    weights, _ = clipped(ClipGradValue(3.5), gradient=(3.0, -4.0))
    assert weights == [-3.0, 3.5]


@pytest.mark.parametrize("clip", [ClipGradNorm, ClipGradValue])
def test_clipping_can_be_for_one_optimizer_of_several(clip):
    (weights, optimizer), (others, other_optimizer) = two_weights(), two_weights()
    update, update_other = Update(optimizer), Update(other_optimizer, event=Gan.CRITIC_UPDATED)

    def process(state, batch):
        update(state, 9 * weights.sum())
        update_other(state, 9 * others.sum())

    Engine(process, clip(1.0, optimizer=optimizer)).run([1], max_epochs=1)
    assert max(weights.abs()) <= 1
    assert others.tolist() == [-9.0, -9.0]


@pytest.mark.parametrize("clip", [ClipGradNorm, ClipGradValue, GradNorm])
def test_a_handler_has_to_be_told_whose_gradients_a_step_of_ones_own_has_ready(clip):
    def process(state, batch):
        state.fire(Events.GRADIENTS_READY)

    with pytest.raises(RuntimeError, match="make the step with Update, or pass optimizer="):
        Engine(process, clip(1.0)).run([1], max_epochs=1)
    weights, optimizer = two_weights()
    weights.grad = torch.tensor([3.0, 4.0])
    Engine(process, clip(1.0, optimizer=optimizer)).run([1], max_epochs=1)
    assert max(weights.grad) <= 1 or clip is GradNorm


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), "1"])
@pytest.mark.parametrize("clip", [ClipGradNorm, ClipGradValue])
def test_a_bound_that_leaves_nothing_is_refused(clip, wrong):
    with pytest.raises(ValueError, match="needs a number above 0"):
        clip(wrong)


def gradients(kind):
    """Parameters with gradients of one type, of two, with an empty place, a sparse one, or none."""
    torch.manual_seed(1)
    of = [torch.nn.Parameter(torch.randn(size)) for size in (3, 70, 1)]
    if kind == "two types":
        of.append(torch.nn.Parameter(torch.randn(5, dtype=torch.float64)))
    if kind != "none":
        for each in of:
            each.grad = torch.randn_like(each)
    if kind == "a hole":
        of[1].grad = None
    return of


@pytest.mark.parametrize("kind", ["one type", "two types", "a hole", "none"])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("most", [0.5, 1e9])
def test_clipping_is_torchs_to_the_last_bit(kind, norm_type, most):
    ours, theirs = gradients(kind), gradients(kind)
    state = State()
    state.step_under_way.gradients = Gradients(torch.optim.SGD(ours, lr=1.0))
    ClipGradNorm(most, norm_type=norm_type).clip(state)
    norm = torch.nn.utils.clip_grad_norm_(theirs, most, norm_type)
    assert torch.equal(state.metrics["grad_norm"], norm)
    for mine, its in zip(ours, theirs, strict=True):
        assert (mine.grad is None) == (its.grad is None)
        assert mine.grad is None or torch.equal(mine.grad, its.grad)


@pytest.mark.parametrize("head", ["half", "float", "double"])
def test_finite_gradients_of_float16_are_clipped_and_not_made_zero(head):
    # 300 squared is beyond float16, so the norm that torch's function takes there is infinite.
    body = torch.nn.Parameter(torch.zeros(1000, dtype=torch.float16))
    other = getattr(torch.nn.Parameter(torch.zeros(2)).data, head)().requires_grad_()
    update = Update(torch.optim.SGD([body, other], lr=1.0))
    engine = Engine(
        lambda state, _: update(state, (body * 300).float().sum() + other.sum() * 0),
        objects={"optimizer": update.optimizer},
    ).add(update, ClipGradNorm(1.0))
    norm = engine.run([0], max_epochs=1).metrics["grad_norm"]
    assert float(norm) == pytest.approx(300 * 1000**0.5)
    assert float(body.detach().float().norm()) == pytest.approx(1.0, rel=1e-3)


def test_what_an_optimizer_trains_may_change_between_two_steps():
    first, second = (torch.nn.Parameter(torch.zeros(2)) for _ in "ab")
    optimizer = torch.optim.SGD([first], lr=1.0)
    seen = []

    def process(state, batch):
        if batch == 2:
            optimizer.add_param_group({"params": [second]})
        first.requires_grad_(batch != 3)
        if batch == 4:
            optimizer.param_groups[0]["params"] = [first, first.detach().clone().requires_grad_()]
        loss = (torch.tensor([3.0, 4.0]) * first).sum() + (torch.tensor([0.0, 12.0]) * second).sum()
        if batch < 3:
            second.grad = torch.full((2,), 100.0)  # of another backward pass, before it is trained
        update(state, loss)
        seen.append((second.grad is None, state.metrics["grad_norm"].item()))

    update = Update(optimizer)
    Engine(process, ClipGradNorm(1e9)).run([1, 2, 3, 4], max_epochs=1)
    assert seen == [(False, 5.0), (True, 13.0), (True, 12.0), (True, 13.0)]


def test_handlers_see_gradients_that_another_handler_has_put_in_the_place_of_others():
    weight = torch.nn.Parameter(torch.ones(2))
    update = Update(torch.optim.SGD([weight], lr=1.0), accumulate=2)
    engine = Engine(lambda state, batch: update(state, (batch * weight).sum()))

    @engine.on(Events.GRADIENTS_READY)
    def put(state):
        weight.grad = torch.tensor([30.0, 40.0], dtype=torch.float32)

    norms = []
    engine.add(ClipGradNorm(5.0))
    engine.on(Events.STEP_COMPLETED)(lambda state: norms.append(state.metrics["grad_norm"].item()))
    engine.run([torch.ones(2)] * 2, max_epochs=1)
    assert norms == [50.0]
    assert weight.tolist() == pytest.approx([-2.0, -3.0])


@pytest.mark.parametrize("handler", [ClipGradNorm(1.0), ClipGradValue(1.0), GradNorm()])
def test_a_step_without_gradients_may_follow_one_with_some(handler):
    weight, other = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(1))
    update = Update(torch.optim.SGD([weight], lr=0.1), accumulate=2)
    chosen = [weight, weight, other, other]
    engine = Engine(lambda state, batch: update(state, chosen[batch].sum()), handler)
    state = engine.run(range(4), max_epochs=1)
    assert state.step == 2
    assert state.metrics.get("grad_norm", torch.zeros(())).item() == 0.0
    assert weight.grad is None


def test_gradients_are_not_kept_after_the_step():
    weight = torch.nn.Parameter(torch.ones(2))
    update = Update(torch.optim.SGD([weight], lr=0.1))
    engine, held = Engine(lambda state, batch: update(state, weight.sum()), ClipGradNorm(1.0)), []
    engine.on(Events.GRADIENTS_READY)(lambda state: held.append(weakref.ref(weight.grad)))
    engine.on(Events.ITERATION_COMPLETED)(lambda state: held.append(held[-1]()))
    engine.run(range(1), max_epochs=1)
    assert held[-1] is None


def trained(*handlers):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    optimizers = {
        "first": torch.optim.SGD(model[0].parameters(), 0.1),
        "second": torch.optim.SGD(model[1].parameters(), 0.1),
    }
    engine = supervised(model, optimizers, torch.nn.functional.mse_loss)
    for each in handlers:
        engine.add(each(optimizers))
    state = engine.run([(torch.ones(2, 3), torch.ones(2, 1))] * 3, max_epochs=1)
    return state.metrics.get("grad_norm"), [each.tolist() for each in model.parameters()]


@pytest.mark.parametrize(
    "kind", [partial(ClipGradNorm, 0.01), partial(ClipGradValue, 0.01), GradNorm]
)
def test_an_optimizer_is_found_by_its_name_among_the_objects(kind):
    by_object = trained(lambda optimizers: kind(optimizer=optimizers["second"]))
    assert trained(lambda optimizers: kind(optimizer="second")) == by_object
    assert by_object != trained()


@pytest.mark.parametrize(
    "kind", [partial(ClipGradNorm, 1.0), partial(ClipGradValue, 1.0), GradNorm]
)
def test_a_name_that_no_optimizer_has_is_an_error_with_those_that_have(kind):
    with pytest.raises(ValueError, match=r"optimizer='b'\): .* the engine has 'first', 'second'"):
        trained(lambda optimizers: kind(optimizer="b"))


class Words(torch.nn.Module):
    """An embedding whose gradients are sparse, and name a word as often as a batch does."""

    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(1)
        self.embed = torch.nn.Embedding(9, 4, sparse=sparse)
        self.last = torch.nn.Linear(4, 1)

    def forward(self, words):
        return self.last(self.embed(words).mean(1))


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    "handlers",
    [
        [ClipGradNorm(0.1)],
        [ClipGradNorm(0.1, norm_type=float("inf"))],
        [ClipGradValue(0.01)],
        [GradNorm(), NonFiniteGuard("skip"), SpikeGuard("rewind", steps=2), EMA(0.9)],
    ],
    ids=["norm", "largest", "value", "others"],
)
def test_sparse_gradients_are_clipped_as_dense_ones(handlers, accumulate):
    def trained(sparse):
        model = Words(sparse)
        made = torch.Generator().manual_seed(0)
        data = [(torch.randint(9, (6, 3), generator=made), torch.ones(6, 1)) for _ in "abcde"]
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        engine = supervised(model, optimizer, torch.nn.functional.mse_loss, accumulate=accumulate)
        state = engine.add(*handlers).run(data, max_epochs=2)
        return [*model.parameters(), state.metrics.get("grad_norm", torch.zeros(()))]

    torch.testing.assert_close(trained(True), trained(False))


def test_the_norm_of_all_is_another_one_after_the_gradients_of_one_optimizer_were_clipped():
    weights, others = (torch.nn.Parameter(torch.zeros(2)) for _ in "ab")
    parts = {"a": torch.optim.SGD([weights], lr=1.0), "b": torch.optim.SGD([others], lr=1.0)}

    def step(state, batch):
        update(
            state, (torch.tensor([3.0, 4.0]) * weights + torch.tensor([0.0, 12.0]) * others).sum()
        )

    update = Update(parts)
    clips = ClipGradNorm(1.0, optimizer=parts["a"], name="a"), ClipGradNorm(100.0)
    metrics = Engine(step, NonFiniteGuard("skip"), *clips).run([1], max_epochs=1).metrics
    assert metrics["grad_norm/a"] == 5
    assert abs(metrics["grad_norm"] - 145**0.5) < 1e-5  # by torch, the norm of 1 and 12


def test_a_function_that_comes_in_mid_run_may_change_gradients_between_two_readers():
    weight, norms = torch.nn.Parameter(torch.zeros(2)), []

    def step(state, batch):
        update(state, (torch.tensor([3.0, 4.0]) * weight).sum())
        norms.append(state.metrics.get("grad_norm"))

    update = Update(torch.optim.SGD([weight], lr=1.0))
    engine = Engine(step, NonFiniteGuard("skip"))

    @engine.on(Events.ITERATION_STARTED(at=2))
    def attach(state):
        engine.on(Events.GRADIENTS_READY)(lambda state: weight.grad.mul_(2))
        engine.add(ClipGradNorm(100.0))

    engine.run([0, 1], max_epochs=1)
    assert norms == [None, 10.0]


def test_two_optimizers_with_sparse_and_dense_gradients_share_a_norm():
    model = Words(True)
    both = {
        "sparse": torch.optim.SparseAdam([*model.embed.parameters()], 0.1),
        "dense": torch.optim.Adam(model.last.parameters(), 0.1),
    }
    engine = supervised(model, both, torch.nn.functional.mse_loss).add(ClipGradNorm(1e-3))
    seen = []
    engine.on(Events.GRADIENTS_READY)(
        lambda s: seen.append([p.grad.to_dense().norm() for p in model.parameters()])
    )
    engine.run([(torch.randint(9, (6, 3)), torch.ones(6, 1))], max_epochs=2)
    assert [torch.stack(each).norm().item() for each in seen] == pytest.approx([1e-3] * 2, rel=1e-2)


def test_complex_weights_count_in_norms_and_are_not_cut_by_value():
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.complex64))
    real = torch.nn.Parameter(torch.zeros(1))
    update = Update(torch.optim.SGD([weight, real], 1.0))

    def process(state, batch):
        update(state, 3 * weight.real.sum() + 4 * weight.imag.sum() + 12 * real.sum())

    state = Engine(process, GradNorm(), ClipGradNorm(6.5)).run([1], max_epochs=1)
    assert state.metrics["grad_norm"] == 13
    assert (weight.item(), real.item()) == pytest.approx((-1.5 - 2j, -6))
    with pytest.raises(TypeError, match="such as complex ones.*Take ClipGradNorm"):
        Engine(process, ClipGradValue(1.0)).run([1], max_epochs=1)
