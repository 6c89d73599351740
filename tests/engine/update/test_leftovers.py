"""Lines of a loop that stay beside an `Update`, and slips: the loop's result, or what to write."""

import pytest
import torch
from torch import nn

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.handlers import ClipGradNorm, Validate

BATCHES = [torch.ones(2, 2)] * 4
SUM = r"update\(state, loss_a \+ loss_b\)"


class Gan(EventEnum):
    CRITIC_UPDATED = "critic_updated"


@pytest.fixture
def model():
    return nn.Linear(2, 1)


@pytest.fixture
def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train(step, *handlers, batches=BATCHES, **options):
    return Engine(step, *handlers, **options).run(batches, max_epochs=1)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_backward_pass_before_an_update_is_an_error_in_the_second_step(
    model, optimizer, accumulate, precision
):
    scaler = torch.amp.GradScaler("cpu") if precision == "fp16" else None
    update = Update(optimizer, accumulate=accumulate, scaler=scaler)

    def step(state, batch):
        if state.iteration_in_epoch % accumulate == accumulate - 1:
            model(batch).mean().backward()
        update(state, model(batch).mean())

    with pytest.raises(RuntimeError, match=SUM) as error:
        train(step, batches=BATCHES * 2)
    assert any("update(state, model(batch)" in str(each.statement) for each in error.traceback)


def test_gradients_are_looked_at_in_few_iterations(model, optimizer):
    from torch.optim.optimizer import _global_optimizer_post_hooks as hooks

    update, looked = Update(optimizer), []

    def step(state, batch):
        update(state, model(batch).mean())
        if state.step_under_way.check is not None:
            looked.append((state.epoch, state.iteration_in_epoch))
        assert bool(hooks) == (state.step_under_way.check is not None)

    Engine(step, update).run(BATCHES * 8, max_epochs=2)
    assert looked == [(1, n) for n in range(1, 21)]


def test_it_is_an_error_in_the_first_step_of_an_update_that_is_attached(model, optimizer):
    update = Update(optimizer)

    def step(state, batch):
        model(batch).mean().backward()
        update(state, model(batch).mean())

    (100 * model(BATCHES[0]).mean()).backward()  # from before the run, and no leftover
    objects = {"model": model, "optimizer": optimizer}
    with pytest.raises(RuntimeError, match=SUM) as error:
        train(step, update, objects=objects)
    assert error.value.__notes__[0].endswith("iteration 1")


def test_a_backward_pass_that_the_graph_is_kept_for_is_an_error_too(model, optimizer):
    update = Update(optimizer)

    def step(state, batch):
        loss = model(batch).pow(2).mean()
        loss.backward(retain_graph=True)
        update(state, loss)

    with pytest.raises(RuntimeError, match=SUM):
        train(step)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_backward_pass_between_the_micro_batches_of_a_window_is_an_error(model, optimizer, where):
    update = Update(optimizer, accumulate=4)

    def step(state, batch):
        if where == "after":
            update(state, model(batch).mean())
        if state.iteration == 2:
            model(batch).mean().backward()
        if where == "before":
            update(state, model(batch).mean())

    with pytest.raises(RuntimeError, match=rf"(?s)gradients of an open accumulation .*{SUM}"):
        train(step)


@pytest.mark.parametrize("clear", ["optimizer", "model", "to zero"])
def test_gradients_that_zero_grad_drops_before_an_update_are_no_leftover(model, optimizer, clear):
    ways = {
        "optimizer": optimizer.zero_grad,
        "model": model.zero_grad,
        "to zero": lambda: optimizer.zero_grad(set_to_none=False),
    }
    update, before = Update(optimizer), model.weight.clone()

    def step(state, batch):
        (7 * model(batch).mean()).backward()  # for gradients of something else
        ways[clear]()
        update(state, model(batch).mean())

    train(step)
    assert torch.allclose(before - model.weight, torch.tensor(0.1 * len(BATCHES)))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_that_a_loop_left_before_the_run_do_not_count_and_are_no_error(
    model, optimizer, accumulate
):
    update, before = Update(optimizer, accumulate=accumulate), model.weight.clone()
    for _ in range(2):
        (100 * model(BATCHES[0]).mean()).backward()
        train(lambda state, batch: update(state, model(batch).mean()))
    steps = 2 * len(BATCHES) / accumulate
    assert torch.allclose(before - model.weight, torch.tensor(0.1 * steps))


@pytest.mark.parametrize("critic_steps", [1, 3])
@pytest.mark.parametrize("by_hand", [None, "critic", "generator"])
def test_a_critic_whose_loss_goes_through_the_generator_trains_as_in_a_loop(critic_steps, by_hand):
    """As in scripts of WGAN; one of the two networks may keep the lines of the loop."""

    def build():
        torch.manual_seed(0)
        networks = nn.Linear(2, 2), nn.Linear(2, 1)
        return *networks, *(torch.optim.Adam(each.parameters(), lr=0.1) for each in networks)

    def losses(generator, critic):
        return (
            lambda batch: critic(generator(batch)).pow(2).mean() - critic(batch).mean(),
            lambda batch: -critic(generator(batch)).mean(),
        )

    def by_loop(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def run_loop():
        generator, critic, optimizer, critic_optimizer = build()
        critic_loss, loss = losses(generator, critic)
        for number, batch in enumerate(BATCHES * 5, 1):
            by_loop(critic_optimizer, critic_loss(batch))
            if number % critic_steps == 0:
                by_loop(optimizer, loss(batch))
        return [*generator.parameters(), *critic.parameters()]

    def run_engine():
        generator, critic, optimizer, critic_optimizer = build()
        critic_loss, loss = losses(generator, critic)
        update, update_critic = (
            Update(optimizer),
            Update(critic_optimizer, event=Gan.CRITIC_UPDATED),
        )

        def take(state, name, update, loss):
            if by_hand == name:  # without zero_grad(), which the Update of the other one makes
                for parameter in (p for g in update.optimizer.param_groups for p in g["params"]):
                    parameter.grad = None
                loss.backward()
                update.optimizer.step()
            else:
                update(state, loss)

        def step(state, batch):
            take(state, "critic", update_critic, critic_loss(batch))
            if state.iteration % critic_steps == 0:
                take(state, "generator", update, loss(batch))

        train(step, batches=BATCHES * 5)
        return [*generator.parameters(), *critic.parameters()]

    assert all(map(torch.equal, run_engine(), run_loop()))


def test_a_loss_of_one_update_that_adds_to_the_open_window_of_another_is_an_error(model, optimizer):
    critic = nn.Linear(1, 1)
    update = Update(optimizer, accumulate=2)
    update_critic = Update(torch.optim.SGD(critic.parameters(), 0.1), event=Gan.CRITIC_UPDATED)

    def step(detach):
        def step(state, batch):
            made = model(batch)
            update_critic(state, critic(made.detach() if detach else model(batch)).mean())
            update(state, -critic(made).mean())

        return step

    train(step(detach=True))
    with pytest.raises(RuntimeError, match=r"critic\(generator\(noise\).detach\(\)\)"):
        train(step(detach=False))


@pytest.mark.parametrize(
    "event", [Events.ITERATION_COMPLETED, Events.EPOCH_STARTED, Events.EPOCH_COMPLETED]
)
def test_gradients_of_a_handler_between_two_steps_are_dropped_as_zero_grad_drops_them(
    model, optimizer, event
):
    update, before = Update(optimizer), model.weight.clone()
    objects = {"model": model, "optimizer": optimizer}
    engine = Engine(
        lambda state, batch: update(state, model(batch).mean()), update, objects=objects
    )
    engine.on(event)(lambda state: (9 * model(BATCHES[0]).mean()).backward())
    engine.run(BATCHES, max_epochs=2)
    assert torch.allclose(before - model.weight, torch.tensor(0.1 * 2 * len(BATCHES)))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_sparse_gradients_of_an_embedding_are_looked_at_too(accumulate):
    table, critic = nn.Embedding(4, 2, sparse=True), nn.Linear(2, 1)
    update = Update(torch.optim.SGD(table.parameters(), lr=0.1), accumulate=accumulate)
    update_critic = Update(torch.optim.SGD(critic.parameters(), 0.1), event=Gan.CRITIC_UPDATED)

    def step(leak):
        def step(state, batch):
            made = table(batch)
            update_critic(state, critic(made.detach()).mean())
            if leak:
                critic(table(batch)).mean().backward()
            update(state, -critic(made).mean())

        return step

    rows = [torch.tensor([0, 1, 1])] * 4
    train(step(leak=False), batches=rows)
    with pytest.raises(RuntimeError, match=SUM):
        train(step(leak=True), batches=rows)


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad_in_a_window_is_an_error_whatever_it_leaves(model, optimizer, to_none):
    update = Update(optimizer, accumulate=2)

    def step(state, batch):
        optimizer.zero_grad(set_to_none=to_none)
        update(state, model(batch).mean())

    with pytest.raises(RuntimeError, match=r"Leave zero_grad\(\)"):
        train(step)


def test_an_optimizer_stepped_by_hand_in_a_window_is_an_error_at_its_line(model, optimizer):
    update = Update(optimizer, accumulate=2)

    def step(state, batch):
        update(state, model(batch).mean())
        optimizer.step()

    with pytest.raises(RuntimeError, match=r"leave optimizer.step\(\) out") as error:
        train(step)
    assert any("optimizer.step()" in str(each.statement) for each in error.traceback)


def test_a_loop_after_a_run_that_failed_in_a_window_may_step(model, optimizer):
    update = Update(optimizer, accumulate=2)

    def step(state, batch):
        update(state, model(batch).mean())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(step)
    optimizer.step()


def test_lines_of_a_loop_after_an_update_that_find_no_gradients_change_nothing(model, optimizer):
    other = nn.Linear(2, 1)
    other.load_state_dict(model.state_dict())
    update = Update(optimizer)

    def step(state, batch):
        optimizer.zero_grad()
        update(state, model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()

    train(step)
    plain = Update(torch.optim.SGD(other.parameters(), lr=0.1))
    train(lambda state, batch: plain(state, other(batch).mean()))
    assert torch.equal(model.weight, other.weight)


def test_clipping_in_a_window_is_an_error(model, optimizer):
    update = Update(optimizer, accumulate=2)

    def clip():
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)

    def step(state, batch):
        update(state, model(batch).mean())
        clip()

    with pytest.raises(RuntimeError, match=r"add ClipGradNorm\(1.0\)"):
        train(step)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_may_be_changed_where_they_are_whole(model, optimizer, accumulate):
    update = Update(optimizer, accumulate=accumulate)
    engine = Engine(lambda state, batch: update(state, model(batch).mean()), ClipGradNorm(1.0))
    engine.on(Events.GRADIENTS_READY)(
        lambda state: nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    )
    engine.run(BATCHES, max_epochs=2)


def test_two_updates_of_the_same_parameters_in_one_window_are_an_error(model, optimizer):
    updates = Update(optimizer, accumulate=2), Update(optimizer, event=Gan.CRITIC_UPDATED)

    def step(state, batch):
        for update in updates:
            update(state, model(batch).mean())

    with pytest.raises(RuntimeError, match="two Updates have the same parameters"):
        train(step)
    with pytest.raises(RuntimeError, match="outside of the process function"):
        train(lambda state, batch: Update(optimizer, accumulate=2)(state, model(batch).mean()))


def test_two_updates_of_the_same_parameters_may_take_turns(model, optimizer):
    updates = Update(optimizer), Update(optimizer, event=Gan.CRITIC_UPDATED)

    def step(state, batch):
        for update in updates:
            update(state, model(batch).mean())

    assert train(step).step == len(BATCHES)


def test_one_update_may_make_many_steps_an_iteration(model, optimizer):
    update = Update(optimizer)

    def step(state, batch):
        for _ in range(12):
            update(state, model(batch).mean())

    assert train(step).step == 12 * len(BATCHES)


DIVIDED = {
    "int": lambda loss: loss / 4,
    "float": lambda loss: loss / 4.0,
    "method": lambda loss: loss.div(4),
}


@pytest.mark.parametrize("divide", DIVIDED.values(), ids=DIVIDED)
@pytest.mark.parametrize("way", ["own step", "supervised"])
def test_a_mean_divided_by_the_micro_batches_is_a_warning(model, optimizer, divide, way):
    mse, update = nn.functional.mse_loss, Update(optimizer, accumulate=4)
    if way == "supervised":
        engine = supervised(model, optimizer, lambda p, t: divide(mse(p, t)), accumulate=4)
    else:
        engine = Engine(lambda state, batch: update(state, divide(model(batch[0]).mean())))
    with pytest.warns(UserWarning, match="gradients are 4 times too small. Leave `/ 4` out"):
        engine.run([(each, torch.ones(2, 1)) for each in BATCHES], max_epochs=1)


def scale_twice(scaler, loss):
    return scaler.scale(loss / 2) + scaler.scale(loss / 2)


@pytest.mark.parametrize("scaled", [torch.amp.GradScaler.scale, scale_twice])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_loss_that_is_scaled_by_hand_is_an_error(model, optimizer, scaled, is_known):
    scaler = torch.amp.GradScaler("cpu")
    update = Update(optimizer, scaler=scaler if is_known else None)

    def in_parts(state, batch):
        with update.micro_batch(state) as micro:
            micro.backward(scaled(scaler, model(batch).mean()))

    for step in (lambda state, batch: update(state, scaled(scaler, model(batch).mean())), in_parts):
        with pytest.raises(RuntimeError, match=r"the scale of scaler, .*scaler=scaler\)"):
            train(step)


def test_steps_that_a_scaler_makes_by_hand_beside_an_update_are_right(model, optimizer):
    scaler, other, update = torch.amp.GradScaler("cpu"), nn.Linear(2, 1), Update(optimizer)
    by_hand = torch.optim.SGD(other.parameters(), lr=0.1)

    def step(state, batch):
        scaler.scale(other(batch).mean()).backward()
        scaler.step(by_hand)
        scaler.update()
        update(state, model(batch).mean())

    assert train(step).step == len(BATCHES)


MEANS = {
    "sum of many": lambda out: sum(out.mean() * 1e-3 for _ in range(2000)),
    "sum over samples": lambda out: out.sum() / 2,
    "sum by reduction": lambda out: nn.functional.mse_loss(out, out * 0, reduction="sum") / 2,
    "mean of two losses": lambda out: (out.mean() + out.pow(2).mean()) / 2,
    "half": lambda out: out.mean() * 0.5,
    "another number": lambda out: out.mean() / 3,
    "tensor": lambda out: out.mean() / torch.tensor(2.0),
    "computed": lambda out: out.mean() / out.detach().abs().mean(),
}


@pytest.mark.parametrize("loss_of", MEANS.values(), ids=MEANS)
def test_other_divisions_are_no_warning(model, optimizer, loss_of):
    update = Update(optimizer, accumulate=2)
    train(lambda state, batch: update(state, loss_of(model(batch))))
    plain = Update(optimizer)
    train(lambda state, batch: plain(state, model(batch).mean() / 2))
    train(lambda state, batch: update(state, model(batch).sum() / 2, weight=2))


def test_an_update_without_gradient_mode_steps_as_with_it(model, optimizer):
    update, before = Update(optimizer), model.weight.clone()

    def step(state, batch):
        loss = model(batch).mean()
        with torch.no_grad():
            update(state, loss)

    train(step)
    assert torch.allclose(before - model.weight, torch.tensor(0.1 * len(BATCHES)))


def test_a_loss_that_was_used_by_an_update_is_told_in_a_handler_too(model, optimizer):
    update, losses = Update(optimizer), []

    def step(state, batch):
        losses.append(model(batch).pow(2).mean())
        update(state, losses[-1])

    engine = Engine(step)
    engine.on(Events.ITERATION_COMPLETED)(lambda state: update(state, losses[-1]))
    with pytest.raises(RuntimeError, match="a second time") as error:
        engine.run(BATCHES, max_epochs=1)
    assert "call it once for each loss" in "\n".join(error.value.__notes__)


def notes(engine):
    """The notes of the error that ends a run of one epoch."""
    with pytest.raises((RuntimeError, AttributeError, ValueError)) as caught:
        engine.run(BATCHES, max_epochs=1)
    return "\n".join(caught.value.__notes__)


def test_a_step_in_an_evaluation_is_told_to_ask_whether_it_is_a_training(model, optimizer):
    def step(state, batch):
        model(batch).mean().backward()
        optimizer.step()

    found = notes(Engine(step, Validate(BATCHES), objects={"model": model}))
    assert found.count("write `if state.training:`") == 1


@pytest.mark.parametrize(
    ("spoil", "advice"),
    [
        (torch.Tensor.detach, "The loss depends on no trainable parameter"),
        (torch.Tensor.item, "leave out .item() and float()"),
        (lambda loss: [loss.backward(), loss][1], "leave loss.backward() out"),
    ],
)
def test_a_loss_that_has_no_gradient_or_was_used_is_told(model, optimizer, spoil, advice):
    update = Update(optimizer)
    step = lambda state, batch: update(state, spoil(model(batch).pow(2).mean()))  # noqa: E731
    assert advice in notes(Engine(step))


def test_a_last_batch_of_one_sample_at_a_batch_norm_is_told_how_to_leave_it_out():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    update = Update(torch.optim.SGD(model.parameters(), lr=0.1))
    step = lambda state, batch: update(state, model(batch[:1]).mean())  # noqa: E731
    assert "drop_last=True" in notes(Engine(step))


def test_clipping_for_an_optimizer_that_nothing_steps_is_told(model, optimizer):
    update = Update(optimizer)
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    step = lambda state, batch: update(state, model(batch).mean())  # noqa: E731
    objects = {"model": model, "optimizer": optimizer}
    with pytest.warns(UserWarning, match="ClipGradNorm is for the steps of an optimizer"):
        Engine(step, update, ClipGradNorm(1.0, optimizer=other), objects=objects).run(
            BATCHES, max_epochs=1
        )
    Engine(step, ClipGradNorm(1.0, optimizer=optimizer), objects=objects).run(BATCHES, max_epochs=1)
    Engine(step, ClipGradNorm(1.0, optimizer=optimizer)).run(BATCHES, max_epochs=1)
