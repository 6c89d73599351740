"""Steps that a process function makes and does not announce."""

import re
import threading
import warnings

import pytest
import torch

from camshaft import Engine, EventEnum, Events, Update
from camshaft.handlers import (
    EMA,
    Checkpoint,
    ClipGradNorm,
    ClipGradValue,
    GradNorm,
    LRSchedule,
    NonFiniteGuard,
)


class Gan(EventEnum):
    CRITIC_UPDATED = "critic_updated"


@pytest.fixture
def model():
    return torch.nn.Linear(2, 1)


def by_hand(model, *handlers, fire=(), after_each=None):
    """An engine whose process function steps its optimizer itself."""
    optimizer = sgd(model)

    def step(state, batch):
        if not state.training:
            return None
        optimizer.zero_grad()
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        if state.iteration % (after_each or 1) == 0:
            for event in fire:
                state.fire(event)
        return loss

    objects = {"model": model, "optimizer": optimizer}
    return Engine(step, *handlers, objects=objects)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def by_update(model, update, *handlers, factor=1.0, since=1, attached=True):
    """An engine whose process function steps by this update, from an epoch on."""

    def step(state, batch):
        if state.epoch >= since:
            update(state, model(batch).mean() * factor)

    return Engine(step, *[update] * attached, *handlers, objects={"model": model})


BATCHES = [torch.ones(3, 2)] * 3
UPDATE = (
    r"update\(state, loss\)         # instead of zero_grad\(\), backward\(\) and optimizer.step"
)
FIRE = r"state.fire\(Events.STEP_COMPLETED\)  # after optimizer.step\(\)"


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: ClipGradNorm(1.0), "ClipGradNorm"),
        (lambda: ClipGradValue(1.0), "ClipGradValue"),
        (GradNorm, "GradNorm"),
        (NonFiniteGuard, r"NonFiniteGuard\(loss\)"),
    ],
    ids=["ClipGradNorm", "ClipGradValue", "GradNorm", "NonFiniteGuard"],
)
@pytest.mark.parametrize("fire", [(), (Events.STEP_COMPLETED,)], ids=["silent", "announced"])
def test_what_looks_at_gradients_needs_an_update_also_where_steps_are_announced(
    model, make, name, fire
):
    engine = by_hand(model, make(), fire=fire)
    with pytest.raises(RuntimeError, match=rf"(?s)^{name} waits for .*{UPDATE}") as error:
        engine.run(BATCHES, max_epochs=2)
    assert "state.fire" not in str(error.value)
    assert error.value.__notes__ == ["in the process function step, epoch 1, iteration 3"]


def test_what_waits_for_a_step_needs_an_update_or_its_announcement(model, tmp_path):
    optimizer = sgd(model)
    schedule = LRSchedule(torch.optim.lr_scheduler.StepLR(optimizer, 1))
    save = Checkpoint(tmp_path, when=Events.STEP_COMPLETED(every=2))
    engine = by_hand(model, EMA(), save)
    engine.objects["optimizer"] = optimizer
    engine.add(schedule)
    engine.on(Events.STEP_COMPLETED(every=2))(lambda state: None)
    expected = r"EMA\(ema\), LRSchedule\(scheduler\), <lambda> and Checkpoint wait for"
    with pytest.raises(RuntimeError, match=rf"(?s)^{expected}.*{UPDATE}.*{FIRE}"):
        engine.run(BATCHES, max_epochs=2)


def test_the_message_tells_those_apart_for_whom_an_announcement_is_enough(model):
    engine = by_hand(model, ClipGradNorm(1.0), EMA())
    with pytest.raises(RuntimeError) as error:
        engine.run(BATCHES, max_epochs=2)
    message = str(error.value)
    assert message.startswith("ClipGradNorm and EMA(ema) wait for optimizer steps, which never")
    assert "Or announce each step, which is enough for EMA(ema):" in message


def test_the_two_lines_of_the_message_are_right(model):
    engine = by_hand(model, ClipGradNorm(1.0))
    with pytest.raises(RuntimeError) as error:
        engine.run(BATCHES, max_epochs=1)
    given = {"optimizer": engine.objects["optimizer"], "Update": Update, "model": model}
    made, called = [
        line.strip() for line in str(error.value).splitlines() if line.startswith("    ")
    ]
    exec(made, given)

    def step(state, batch):
        exec(called, {**given, "state": state, "loss": model(batch).mean()})

    assert "grad_norm" in Engine(step, ClipGradNorm(1.0)).run(BATCHES, max_epochs=1).metrics


def test_nothing_is_completed_or_saved_before_the_error(model, tmp_path):
    seen = []
    engine = by_hand(model, EMA(), Checkpoint(tmp_path))
    for event in (Events.EPOCH_COMPLETED, Events.COMPLETED, Events.FAILED):
        engine.on(event)(lambda state, event=event: seen.append(event))
    with pytest.raises(RuntimeError, match="which never come"):
        engine.run(BATCHES, max_epochs=1)
    assert seen == [Events.FAILED]
    assert not list(tmp_path.glob("iteration-*"))


@pytest.mark.parametrize("limits", [{"max_iterations": 2}, {"max_epochs": 9, "max_batches": 2}])
def test_a_run_that_is_shorter_than_an_epoch_is_checked_at_its_end(model, limits):
    with pytest.raises(RuntimeError, match="ClipGradNorm waits"):
        by_hand(model, ClipGradNorm(1.0)).run(BATCHES, **limits)


def test_an_epoch_that_has_no_end_is_checked_at_the_101st_step_and_where_it_is_made(model):
    engine = by_hand(model, ClipGradNorm(1.0))
    with pytest.raises(RuntimeError, match="ClipGradNorm waits") as error:
        engine.run((BATCHES[0] for _ in range(10**6)), max_epochs=1)
    assert error.value.__notes__[0].endswith("epoch 1, iteration 101")
    assert any("optimizer.step()" in str(each.statement) for each in error.traceback)


def test_a_limit_of_steps_waits_for_steps_too(model):
    with pytest.raises(RuntimeError, match=r"^max_steps=2 waits for optimizer steps"):
        by_hand(model).run(BATCHES, max_epochs=5, max_steps=2)


def test_steps_that_are_announced_are_all_right(model, caplog):
    steps = []
    engine = by_hand(model, EMA(), fire=[Events.STEP_COMPLETED], after_each=3)
    engine.on(Events.STEP_COMPLETED)(lambda state: steps.append(state.step))
    engine.run(BATCHES, max_epochs=2)
    assert steps == [1, 2]
    assert caplog.text == ""


def test_of_two_optimizers_the_one_that_counts_may_step_a_hundred_times_more_rarely(model):
    engine = by_hand(model, EMA(), fire=[Events.STEP_COMPLETED], after_each=100)
    assert engine.run([BATCHES[0]] * 250, max_epochs=1).step == 2


def test_a_first_epoch_that_steps_nothing_is_a_warning_since_it_may_be_meant(model, caplog):
    handlers = EMA(), ClipGradNorm(1.0)
    engine = by_update(model, Update(sgd(model)), *handlers, since=2, attached=False)
    assert engine.run(BATCHES, max_epochs=2).step == 3
    expected = "the first epoch made no optimizer step, and ClipGradNorm and EMA(ema) wait for one"
    assert caplog.text.count(expected) == 1


def test_skipped_steps_are_steps_too(model, caplog):
    handlers = EMA(), NonFiniteGuard("skip")
    engine = by_update(model, Update(sgd(model)), *handlers, factor=float("nan"))
    state = engine.run(BATCHES, max_epochs=2)
    assert (state.step, state.counts[Events.STEP_SKIPPED]) == (0, 6)
    assert caplog.text == ""


def test_a_window_longer_than_the_epoch_is_a_step(model, caplog):
    engine = by_update(model, Update(sgd(model), accumulate=8), EMA(), ClipGradNorm(1.0))
    assert engine.run(BATCHES, max_epochs=2).step == 2
    (message,) = caplog.messages
    assert "Update(accumulate=8) is more than the 3 batches of an epoch" in message


def test_handlers_of_steps_that_all_updates_announce_under_other_names_are_an_error(model):
    update = Update(sgd(model), event=Gan.CRITIC_UPDATED)
    engine = by_update(model, update, ClipGradNorm(1.0), EMA())
    expected = r"^EMA\(ema\) waits for Events.STEP_COMPLETED, and .* as Gan.CRITIC_UPDATED: choose"
    with pytest.raises(RuntimeError, match=expected):
        engine.run(BATCHES, max_epochs=1)
    engine = by_update(model, update, ClipGradNorm(1.0), EMA(when=Gan.CRITIC_UPDATED))
    assert engine.run(BATCHES, max_epochs=1).counts[Gan.CRITIC_UPDATED] == 3


def test_an_update_that_waits_while_another_one_steps_is_a_warning(model, caplog):
    critic = torch.nn.Linear(2, 1)
    update = Update(sgd(model))
    update_critic = Update(sgd(critic), event=Gan.CRITIC_UPDATED)

    def step(state, batch):
        update_critic(state, critic(batch).mean())
        if state.epoch > 1:
            update(state, model(batch).mean())

    engine = Engine(step, update, update_critic, EMA(), objects={"model": model, "critic": critic})
    assert engine.run(BATCHES, max_epochs=2).step == 3
    assert caplog.text.count("Update made no step in the first epoch: it got no") == 1


@pytest.mark.parametrize(("limit", "two_epochs"), [("max_epochs", 2), ("max_steps", 6)])
def test_a_run_that_is_stopped_before_its_first_batch_is_told_of_no_missing_step(
    model, caplog, limit, two_epochs
):
    for epoch in 1, 3:
        engine = by_update(model, Update(sgd(model)), ClipGradNorm(1.0))
        done = engine.run(BATCHES, **{limit: two_epochs}) if epoch > 1 else None
        engine.on(Events.EPOCH_STARTED(at=epoch))(lambda state: state.stop("enough"))
        assert engine.run(BATCHES, **{limit: 2 * two_epochs}, state=done).stop_reason == "enough"
    assert caplog.text == ""


def test_two_updates_that_both_count_the_steps_of_the_run_are_a_warning(model):
    critic = torch.nn.Linear(2, 1)
    update = Update(sgd(model))

    def build(update_critic):
        def step(state, batch):
            update(state, model(batch).mean())
            if state.iteration % 3 == 2:
                update_critic(state, critic(batch).mean())

        return Engine(step, objects={"model": model, "critic": critic})

    optimizer = sgd(critic)
    with pytest.warns(UserWarning, match="2 Updates count .* state.step is 4 after 3 iterations"):
        assert build(Update(optimizer)).run(BATCHES, max_epochs=2).step == 8
    assert build(Update(optimizer, event=Gan.CRITIC_UPDATED)).run(BATCHES, max_epochs=2).step == 6


WAYS = {"plain": lambda loss: loss, "dict": lambda loss: {"loss": loss}, "list": lambda x: [x]}


@pytest.mark.parametrize("wrap", WAYS.values(), ids=WAYS)
def test_a_loss_that_is_returned_and_trains_nothing_is_a_warning(model, wrap):
    optimizer = sgd(model)
    objects = {"model": model, "optimizer": optimizer}
    engine = Engine(lambda state, batch: wrap(model(batch).mean()), objects=objects)
    with pytest.warns(UserWarning, match=r"changed no weight of objects\['optimizer'\]. Make an"):
        engine.run(BATCHES, max_epochs=2)


def test_an_update_that_takes_over_from_another_one_is_no_second_clock(model):
    updates = [Update(torch.optim.SGD(model.parameters(), lr=lr)) for lr in (0.1, 0.01)]
    step = lambda state, batch: updates[state.epoch - 1](state, model(batch).mean())  # noqa: E731
    assert Engine(step, objects={"model": model}).run(BATCHES, max_epochs=2).step == 6


def test_evaluations_rehearsals_and_runs_that_nobody_waits_in_are_not_checked(model, caplog):
    engine = by_hand(model, ClipGradNorm(1.0))
    engine.evaluate(BATCHES)
    engine.simulate(max_epochs=2, epoch_length=2)
    by_hand(model).run(BATCHES, max_epochs=2)
    assert caplog.text == ""


def test_a_run_that_is_interrupted_in_its_first_epoch_is_not_ended_by_an_error(model, tmp_path):
    engine = by_hand(model, EMA(), Checkpoint(tmp_path))
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.interrupt("the machine goes"))
    assert engine.run(BATCHES, max_epochs=1).is_interrupted
    assert list(tmp_path.glob("iteration-*"))


def test_a_resumed_run_is_checked_at_the_end_of_its_first_whole_epoch(model, tmp_path):
    def engine(**options):
        return by_hand(model, EMA(), Checkpoint(tmp_path, resume=True), **options)

    first = engine(fire=[Events.STEP_COMPLETED])
    first.on(Events.ITERATION_COMPLETED(at=4))(lambda state: state.interrupt("the machine goes"))
    assert first.run(BATCHES, max_epochs=4).iteration == 4
    with pytest.raises(RuntimeError, match="EMA") as error:
        engine().run(BATCHES, max_epochs=4)
    assert re.search(r"epoch 3, iteration 9$", error.value.__notes__[0])


def test_steps_of_other_runs_and_of_other_engines_do_not_count(model, caplog):
    inner = by_hand(model)

    def step(state, batch):
        inner.run(BATCHES, max_epochs=1, parent=state)

    Engine(step, EMA(), objects={"model": model}).run([1, 2], max_epochs=1)
    assert "the first epoch made no optimizer step, and EMA(ema) waits for one" in caplog.text


def test_optimizers_are_looked_at_in_the_first_epoch_only(model):
    from torch.optim.optimizer import _global_optimizer_post_hooks as hooks

    engine, looking = by_hand(model, EMA(), fire=[Events.STEP_COMPLETED]), []
    engine.on(Events.EPOCH_STARTED)(lambda state: looking.append(len(hooks)))
    engine.run(BATCHES, max_epochs=3)
    with pytest.raises(RuntimeError, match="EMA"):
        by_hand(model, EMA()).run([BATCHES[0]] * 200, max_epochs=1)
    assert looking == [1, 0, 0]
    assert not hooks


def test_they_are_looked_at_no_longer_once_an_update_has_stepped(model):
    from torch.optim.optimizer import _global_optimizer_post_hooks as hooks

    engine, looking = by_update(model, Update(sgd(model)), ClipGradNorm(1.0), attached=False), []
    engine.on(Events.STEP_COMPLETED)(lambda state: looking.append(len(hooks)))
    engine.run([BATCHES[0]] * 30, max_epochs=1)
    assert looking == [1] * 20 + [0] * 10  # in the first 20, gradients are looked at


@pytest.mark.filterwarnings("ignore:another thread of this process")
def test_a_run_that_begins_and_ends_in_another_thread_leaves_the_hooks_of_a_step_alone(model):
    from torch.optim import optimizer as optimizers

    def announcing():
        return by_hand(torch.nn.Linear(2, 1), EMA(), fire=[Events.STEP_COMPLETED])

    def run_another(*_):
        if threading.current_thread() is threading.main_thread():
            run = announcing().run
            other = threading.Thread(target=run, args=(BATCHES,), kwargs={"max_epochs": 1})
            other.start()
            other.join()

    hook = optimizers.register_optimizer_step_post_hook(run_another)
    try:
        assert announcing().run(BATCHES, max_epochs=2).step == 2 * len(BATCHES)
        assert list(optimizers._global_optimizer_post_hooks.values()) == [run_another]
    finally:
        hook.remove()


def test_steps_of_others_before_an_attached_update_makes_its_own_are_no_error(model, caplog):
    critic, update = by_hand(torch.nn.Linear(2, 1)), Update(torch.optim.SGD(model.parameters(), 1))

    def step(state, batch):
        if state.epoch > 1:
            update(state, model(batch).mean())
        else:
            critic.process(state, batch)

    state = Engine(step, update, ClipGradNorm(1.0)).run(BATCHES, max_epochs=2)
    assert state.step == len(BATCHES)
    assert "Update made no step in the first epoch" in caplog.text


def test_a_handler_with_an_event_of_its_own_is_no_update(caplog):
    class Report:
        event = Events.EPOCH_COMPLETED

        def attach(self, engine):
            engine.on(self.event)(lambda state: None)

    Engine(lambda state, batch: None, Report()).run([1], max_epochs=1)
    assert not caplog.records


def collecting(directory, when, *, zero, every=2):
    """The warnings of a run that steps by hand in each second iteration, with saves."""
    model, critic = torch.nn.Linear(2, 1), torch.nn.Linear(1, 1)
    optimizer, others = sgd(model), sgd(critic)

    def step(state, batch):
        if zero == "before":
            optimizer.zero_grad(set_to_none=every > 1)
        critic(model(batch)).mean().backward()  # which leaves gradients of the critic
        if state.iteration % every == 0:
            optimizer.step()
            state.fire(Events.STEP_COMPLETED)
            if zero == "behind":
                optimizer.zero_grad()
        if state.iteration % 3 == 0:
            others.zero_grad()
            critic(model(batch).detach()).mean().backward()
            others.step()

    objects = {"model": model, "optimizer": optimizer, "critic": critic, "others": others}
    engine = Engine(step, Checkpoint(directory, when=when), objects=objects)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine.run(BATCHES * 2, max_epochs=2)
    return [str(each.message) for each in caught]


def test_a_save_between_the_backward_passes_of_a_step_by_hand_is_told_of_once(tmp_path):
    (said,) = collecting(tmp_path, Events.ITERATION_COMPLETED, zero="behind")
    assert said.startswith("objects['optimizer'] makes one step for several iterations")


def test_a_save_where_a_step_by_hand_is_made_is_not(tmp_path):
    assert collecting(tmp_path, Events.STEP_COMPLETED, zero="behind") == []


@pytest.mark.parametrize("every", [1, 2])
def test_nor_is_one_where_gradients_of_the_iteration_before_are_dropped(tmp_path, every):
    assert collecting(tmp_path, Events.ITERATION_COMPLETED, zero="before", every=every) == []
