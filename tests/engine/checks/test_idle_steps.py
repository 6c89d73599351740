"""Steps that change nothing, and means that differ by accumulation, are told of; others are not."""

import pytest
import torch
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR, StepLR
from torch.optim.swa_utils import AveragedModel

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.handlers import LRSchedule, Validate

BATCHES = [(torch.randn(6, 4), torch.tensor([0, 1, 2, -100, 1, 0])) for _ in range(3)]
WEIGHTS = torch.tensor([1.0, 2.0, 3.0])
NOTHING = "no weight of objects['optimizer'] had a gradient in its first 6 steps"


class Other(EventEnum):
    STEP = "step"


def trained(loss_fn, *functions, schedule=None, epochs=2):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, loss_fn)
    if schedule:
        scheduler, event = LambdaLR(optimizer, schedule[0]), schedule[1]
        engine.add(LRSchedule(scheduler, when=event))
    for event, function in functions:
        engine.on(event)(function)
    engine.run(BATCHES, max_epochs=epochs)
    return optimizer


def said(recwarn):
    return [str(each.message) for each in recwarn]


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda p, t: functional.cross_entropy(p, t).detach().requires_grad_(),
        lambda p, t: functional.mse_loss(p.argmax(1).float().requires_grad_(), t.float()),
    ],
    ids=["detached", "argmax"],
)
def test_a_loss_that_was_cut_off_from_all_weights_is_told_of(loss_fn, recwarn):
    trained(loss_fn)
    (text,) = said(recwarn)
    assert text.startswith(NOTHING)


@pytest.mark.parametrize("event", [Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY])
def test_gradients_that_a_handler_clears_before_each_step_are_told_of(event, recwarn):
    trained(functional.cross_entropy, (event, lambda state: state.optimizer.zero_grad()))
    (text,) = said(recwarn)
    assert text.startswith(NOTHING)


def test_a_schedule_that_is_zero_for_many_steps_is_told_of(recwarn):
    trained(functional.cross_entropy, schedule=(lambda n: n // 10, Events.STEP_COMPLETED))
    (text,) = said(recwarn)
    assert "gives a learning rate of 0 for its first 6 steps" in text


def test_a_batch_without_a_loss_a_warm_up_from_zero_and_a_late_critic_are_not_told_of(recwarn):
    def sometimes(prediction, target):
        is_empty = bool(target[0] == 0 and prediction.sum() > prediction.detach().sum() - 1)
        loss = functional.cross_entropy(prediction, target)
        return loss * 0 if is_empty else loss

    trained(sometimes, schedule=(lambda n: n / 10, Events.STEP_COMPLETED))
    critic, model = torch.nn.Linear(4, 1), torch.nn.Linear(4, 4)
    of_critic = Update(torch.optim.SGD(critic.parameters()), event=Other.STEP)
    update = Update(torch.optim.SGD(model.parameters()))

    def step(state, batch):
        update(state, model(batch[0]).square().mean())
        if state.iteration > 4:
            of_critic(state, critic(model(batch[0])).mean())
        else:
            of_critic(state, torch.zeros((), requires_grad=True))

    objects = {"critic": critic, "model": model}
    Engine(step, update, of_critic, objects=objects).run(BATCHES, max_epochs=2)
    assert said(recwarn) == []


def test_a_step_that_fires_the_events_of_gradients_itself_is_not_looked_at():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters())

    def step(state, batch):
        model(batch[0]).mean().backward()
        state.fire(Events.GRADIENTS_READY)
        optimizer.step()
        state.fire(Events.STEP_COMPLETED)

    objects = {"model": model, "optimizer": optimizer}
    assert Engine(step, objects=objects).run(BATCHES, max_epochs=1).step == 3


@pytest.mark.parametrize(
    ("loss_of", "accumulate", "says"),
    [
        (functional.cross_entropy, 2, "targets that are not -100"),
        (lambda p, t: functional.cross_entropy(p, t, WEIGHTS), 2, "weights of their classes"),
        (lambda p, t: functional.cross_entropy(p[:, :, None], t[:, None]), 3, "are not -100"),
        (functional.cross_entropy, 1, None),
        (lambda p, t: functional.cross_entropy(p[:3], t[:3]), 2, None),
        (lambda p, t: functional.cross_entropy(p, t, reduction="none").mean(), 2, None),
    ],
    ids=["ignored", "classes", "pixels", "each", "none ignored", "by hand"],
)
def test_a_mean_over_some_targets_is_told_of_in_a_step_of_ones_own(
    loss_of, accumulate, says, recwarn
):
    model = torch.nn.Linear(4, 3)
    update = Update(torch.optim.SGD(model.parameters()), accumulate=accumulate)
    engine = Engine(lambda state, batch: update(state, loss_of(model(batch[0]), batch[1])), update)
    engine.run(BATCHES, max_epochs=2)
    assert [says in text for text in said(recwarn)] == [True] * (says is not None)


def test_errors_of_labels_words_and_closures_say_what_to_write():
    with pytest.raises(IndexError, match="out of bounds") as raised:
        trained(lambda p, t: functional.cross_entropy(p, t + 1, ignore_index=-99))
    assert "Labels that begin at 1 need target - 1" in raised.value.__notes__[-1]
    with pytest.raises(TypeError, match="must be Tensor, not dict") as raised:
        trained(lambda p, t: functional.cross_entropy({"logits": p}, t))
    assert "loss_fn(output.logits, target)" in raised.value.__notes__[-1]
    words = torch.nn.Embedding(3, 2)
    update = Update(torch.optim.SGD(words.parameters()))
    with pytest.raises(IndexError, match="out of range") as raised:
        Engine(lambda state, batch: update(state, words(batch).sum()), update).run(
            [torch.tensor([3])], max_epochs=1
        )
    assert "not below its num_embeddings" in raised.value.__notes__[-1]


class Sharp(torch.optim.SGD):
    """Computes the loss again, and takes its closure as libraries do."""

    def step(self, closure=None):
        if closure is None:
            raise RuntimeError("Sharp requires closure")


def test_an_optimizer_that_got_no_closure_says_where_to_give_it():
    model = torch.nn.Linear(4, 3)
    engine = supervised(model, Sharp(model.parameters()), functional.cross_entropy)
    with pytest.raises(RuntimeError, match="requires closure") as raised:
        engine.run(BATCHES, max_epochs=1)
    assert "update(state, loss, closure=" in raised.value.__notes__[-1]


def clip(state):
    torch.nn.utils.clip_grad_norm_(state.engine.objects["model"].parameters(), 0.1)


def clip_and_step(state):
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    other.param_groups[0]["params"][0].grad = torch.ones(2)
    torch.nn.utils.clip_grad_value_(other.param_groups[0]["params"], 0.1)
    other.step()


@pytest.mark.parametrize(
    ("event", "function", "tells"),
    [
        (Events.ITERATION_COMPLETED, clip, True),
        (Events.STEP_COMPLETED, clip, True),
        (Events.GRADIENTS_READY, clip, False),
        (Events.BACKWARD_COMPLETED, clip, False),
        (Events.ITERATION_COMPLETED, clip_and_step, False),
    ],
)
def test_clipping_that_comes_after_the_step_is_told_of(event, function, tells, recwarn):
    trained(functional.cross_entropy, (event, function))
    assert ("clip clips gradients that no step uses" in "".join(said(recwarn))) is tells


def test_clipping_beside_an_update_in_a_step_is_told_of():
    model = torch.nn.Linear(4, 3)
    update = Update(torch.optim.SGD(model.parameters(), lr=0.1))

    def step(state, batch):
        update(state, functional.cross_entropy(model(batch[0]), batch[1]))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    with pytest.warns(UserWarning, match=r"step clips gradients that no step uses.*ClipGradNorm"):
        engine.run(BATCHES, max_epochs=1)


def with_scheduler(by, epochs=2):
    """Train with a scheduler among the objects; what steps it is attached by a function."""
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, functional.cross_entropy)
    engine.objects["schedule"] = StepLR(optimizer, 1)
    by(engine, engine.objects["schedule"])
    engine.run(BATCHES, max_epochs=epochs)


@pytest.mark.parametrize(
    "by",
    [
        lambda engine, _: None,
        lambda engine, _: engine.on(Events.EPOCH_COMPLETED)(lambda state: print(state.step)),
    ],
    ids=["nothing attached", "a function that names the step"],
)
def test_a_scheduler_among_the_objects_that_nothing_steps_is_told_of(by, recwarn):
    with_scheduler(by)
    (text,) = said(recwarn)
    assert text.startswith("nothing has called step of the LRScheduler objects['schedule']")


def test_an_average_of_torch_that_nothing_updates_is_told_of(recwarn):
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average = AveragedModel(model)
    for updates in (False, True):
        engine = supervised(model, optimizer, functional.cross_entropy)
        engine.objects["ema"] = average
        engine.add(Validate(BATCHES, weights="ema"))
        if updates:
            engine.on(Events.STEP_COMPLETED)(lambda state: average.update_parameters(model))
        engine.run(BATCHES, max_epochs=2)
    (text,) = said(recwarn)
    assert text.startswith("nothing has called update_parameters of the AveragedModel objects['e")


class StepsRarely:
    def __init__(self, scheduler):
        self.scheduler = scheduler

    def attach(self, engine):
        engine.on(Events.EPOCH_COMPLETED(every=9))(lambda state: self.scheduler.step())


@pytest.mark.parametrize(
    "by",
    [
        lambda engine, one: engine.add(LRSchedule(one, when=Events.EPOCH_COMPLETED(every=9))),
        lambda engine, one: engine.on(Events.EPOCH_COMPLETED(every=9))(lambda state: one.step()),
        lambda engine, one: engine.on(Events.EPOCH_COMPLETED)(
            lambda state: state.engine.objects["schedule"].step()
        ),
        lambda engine, one: engine.add(StepsRarely(one)),
    ],
    ids=["a schedule", "a function", "by name", "a handler"],
)
def test_a_scheduler_that_something_steps_now_and_then_is_not_told_of(by, recwarn):
    with_scheduler(by)
    assert said(recwarn) == []
