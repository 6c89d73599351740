"""Updates: what a step's gradient is a mean over, and what is announced."""

import pytest
import torch

from camshaft import Engine, EventEnum, Events, Update


def one_weight(lr=1.0, value=0.0):
    weight = torch.nn.Parameter(torch.tensor(value, dtype=torch.float64))
    return weight, torch.optim.SGD([weight], lr=lr)


def run(update, losses):
    """An engine that updates by `losses(batch)`, a loss and perhaps its weight; its gradients."""
    gradients = []

    def process(state, batch):
        loss, *weight = losses(batch)
        update(state, loss, weight=weight[0] if weight else None)

    engine = Engine(process)

    @engine.on(Events.GRADIENTS_READY)
    def note(state):
        (parameter,) = state.optimizer.param_groups[0]["params"]
        gradients.append(parameter.grad.item())

    return engine, gradients


def test_a_process_function_that_forgets_its_update_is_told_of(caplog):
    _, optimizer = one_weight()
    Engine(lambda state, batch: None, Update(optimizer)).run([1, 2], max_epochs=2)
    assert caplog.text.count("Update made no step in the first epoch: it got no") == 1


def test_a_run_that_would_never_come_to_its_steps_is_an_error():
    weight, optimizer = one_weight()
    engine = Engine(lambda state, batch: None, Update(optimizer))
    with pytest.raises(RuntimeError, match="max_steps=3 is the only limit, and the first epoch"):
        engine.run([1, 2], max_steps=3)

    class Own(EventEnum):
        STEPPED = "stepped"

    update = Update(optimizer, event=Own.STEPPED)
    engine = Engine(lambda state, batch: update(state, weight * 1.0), update)
    with pytest.raises(RuntimeError, match="max_steps=3 waits for Events.STEP_COMPLETED, and the"):
        engine.run([1, 2], max_steps=3)


def test_an_evaluation_of_a_model_that_the_engine_does_not_know_is_told_of():
    class Saved:
        """Has a state_dict, and the module is not one of its attributes."""

        def __init__(self, module):
            self.state_dict, self.load_state_dict = module.state_dict, module.load_state_dict

    model = torch.nn.Linear(1, 1)
    engine = Engine(lambda state, batch: None, Update(torch.optim.SGD(model.parameters(), lr=1.0)))
    for objects in ({}, {"model": Saved(model)}, {"model": torch.nn.Linear(1, 1)}):
        engine.objects.clear()
        engine.objects.update(objects)
        with pytest.warns(
            UserWarning, match="the parameters that its optimizer updates, so this evaluation"
        ):
            engine.evaluate([1])
    engine.objects["model"] = model
    engine.evaluate([1])


@pytest.mark.parametrize("sized", [True, False], ids=["length known", "length unknown"])
def test_windows_neither_drop_nor_leak_micro_batches_over_epochs(sized):
    weight, optimizer = one_weight()
    engine, gradients = run(Update(optimizer, accumulate=2), lambda batch: (weight * 1.0,))

    class Data:
        def __iter__(self):
            return iter(range(5))

    data = range(5) if sized else Data()
    state = engine.run(data, max_epochs=1)
    assert (weight.item(), state.step) == (-3.0, 3)
    engine.run(data, max_epochs=2, state=state)
    assert (weight.item(), state.step, gradients) == (-6.0, 6, [1.0] * 6)


def test_a_window_cut_by_max_iterations_is_stepped():
    weight, optimizer = one_weight()
    engine, gradients = run(Update(optimizer, accumulate=4), lambda batch: (weight * 1.0,))
    state = engine.run(range(100), max_iterations=6)
    assert (gradients, state.step) == ([1.0, 1.0], 2)


def test_max_steps_ends_the_run_at_once_and_steps_with_what_another_window_holds():
    class Other(EventEnum):
        STEPPED = "stepped"

    weights = [torch.nn.Parameter(torch.tensor(0.0)) for _ in range(2)]
    main, other = (torch.optim.SGD([each], lr=1.0) for each in weights)
    updates = Update(main), Update(other, accumulate=4, event=Other.STEPPED)

    def process(state, batch):
        for update, weight in zip(updates, weights, strict=True):
            update(state, batch * weight)

    state = Engine(process).run([1.0] * 5, max_epochs=3, max_steps=7)
    assert (state.step, state.iteration, state.stop_reason) == (7, 7, "max_steps")
    assert state.counts[Other.STEPPED] == 3  # of four batches, one, and two
    assert [each.item() for each in weights] == [-7.0, -3.0]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_weights_may_be_tensors_of_one_element(shape):
    weight, optimizer = one_weight(lr=0.0)
    engine, gradients = run(
        Update(optimizer, accumulate=2), lambda batch: (weight * batch, torch.full(shape, batch))
    )
    engine.run([3, 5], max_epochs=1)
    assert gradients == [1.0]


def test_a_window_without_targets_has_no_gradient_rather_than_nan():
    weight, optimizer = one_weight(lr=1.0)
    engine, gradients = run(Update(optimizer), lambda batch: (weight * 0.0, 0))
    engine.run([1], max_epochs=1)
    assert gradients == [0.0]


def test_mixing_weighted_and_unweighted_micro_batches_is_an_error():
    weight, optimizer = one_weight()
    engine, _ = run(
        Update(optimizer, accumulate=2), lambda batch: (weight * 1.0, 3 if batch else None)
    )
    with pytest.raises(ValueError, match="some have a weight= and some have none|some have none"):
        engine.run([0, 1], max_epochs=1)


def test_events_of_a_step_come_in_order_and_the_step_counts_when_it_is_done():
    weight, optimizer = one_weight()
    engine, _ = run(Update(optimizer), lambda batch: (weight * 1.0,))
    seen = []
    for event in (Events.GRADIENTS_READY, Events.STEP_COMPLETED, Events.ITERATION_COMPLETED):
        engine.on(event)(
            lambda state, event=event: seen.append(
                (event.name, state.step, weight.item(), weight.grad is None)
            )
        )
    engine.run([1], max_epochs=1)
    assert seen == [
        ("GRADIENTS_READY", 0, 0.0, False),
        ("STEP_COMPLETED", 1, -1.0, False),
        ("ITERATION_COMPLETED", 1, -1.0, True),
    ]


def test_saves_and_stops_are_put_off_until_the_window_is_closed():
    weight, optimizer = one_weight()
    engine, _ = run(Update(optimizer, accumulate=4), lambda batch: (weight * 1.0,))
    saved = []
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.save("in the window"))
    engine.on(Events.SAVING)(lambda state: saved.append(state.iteration))
    engine.on(Events.ITERATION_COMPLETED(at=6))(lambda state: state.stop("in the window"))
    state = engine.run(range(10), max_epochs=1)
    assert saved == [4]
    assert (state.iteration, state.step, state.stop_reason) == (8, 2, "in the window")


def test_gradients_that_a_failed_run_or_another_backward_pass_left_do_not_count():
    weight, optimizer = one_weight()
    engine, gradients = run(Update(optimizer, accumulate=2), lambda batch: (weight * batch,))

    @engine.on(Events.ITERATION_COMPLETED(at=1, once=True))
    def fail(state):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        engine.run([100.0, 100.0], max_epochs=1)
    engine.off(fail)
    assert weight.grad is not None
    engine.run([1.0, 1.0], max_epochs=1)
    assert gradients == [1.0]


class GanEvents(EventEnum):
    CRITIC_UPDATED = "critic_updated"


def test_each_of_two_optimizers_has_a_clock_of_its_own():
    weight, optimizer = one_weight()
    critic, critic_optimizer = one_weight()
    update = Update(optimizer)
    update_critic = Update(critic_optimizer, event=GanEvents.CRITIC_UPDATED)

    def process(state, batch):
        update_critic(state, critic * 1.0)
        update(state, weight * critic.detach())

    engine, calls = Engine(process), []
    clocks = (Events.ITERATION_COMPLETED, Events.STEP_COMPLETED, GanEvents.CRITIC_UPDATED)
    for event in clocks:
        engine.on(event(every=10))(lambda state, event=event: calls.append(event))
    state = engine.run(range(100), max_epochs=1)
    assert (state.iteration, state.step, state.counts[GanEvents.CRITIC_UPDATED]) == (100, 100, 100)
    assert [calls.count(event) for event in clocks] == [10, 10, 10]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"optimizer": "sgd"}, TypeError, "needs a torch.optim.Optimizer"),
        ({"accumulate": 0}, ValueError, "a number of micro-batches, from 1"),
        ({"accumulate": 1.5}, ValueError, "a number of micro-batches, from 1"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, says):
    _, optimizer = one_weight()
    with pytest.raises(error, match=says):
        Update(**{"optimizer": optimizer, **arguments})


def test_an_optimizer_with_a_zero_grad_of_its_own_is_asked_to_use_it():
    class Watched(torch.optim.SGD):
        asked = 0

        def zero_grad(self, set_to_none=True):
            self.asked += 1
            super().zero_grad(set_to_none)

    weight = torch.nn.Parameter(torch.tensor(1.0))
    optimizer = Watched([weight], lr=1.0)
    engine, _ = run(Update(optimizer), lambda batch: (weight * 1.0,))
    engine.run(range(3), max_epochs=1)
    assert optimizer.asked == 6  # before each window and after it
    assert weight.grad is None


def test_a_backward_pass_that_failed_spoils_its_window_and_no_other():
    weight, optimizer = one_weight(lr=0.0)
    update, gradients = Update(optimizer, accumulate=2), []

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(context, value):
            return value.clone()

        @staticmethod
        def backward(context, gradient):
            raise MemoryError

    def process(state, batch):
        loss = weight * batch
        try:
            update(state, Failing.apply(loss) if batch == 100.0 else loss, weight=1)
        except MemoryError:
            state.metrics["failed"] = state.iteration

    engine = Engine(process)
    engine.on(Events.GRADIENTS_READY)(lambda state: gradients.append(weight.grad.item()))
    state = engine.run([1.0, 100.0, 3.0, 5.0, 7.0, 9.0], max_epochs=1)
    assert state.metrics["failed"] == 2
    assert gradients == [4.0, 8.0]


def test_a_window_in_which_nothing_needs_gradients_is_stepped_without_any():
    weight, optimizer = one_weight()
    other = torch.nn.Parameter(torch.zeros(()))
    engine = Engine(lambda state, batch: Update(optimizer, accumulate=2)(state, other * 1.0))
    assert engine.run([1], max_epochs=1).step == 1
    assert weight.item() == 0.0


def test_an_update_in_an_evaluation_is_an_error_that_names_the_remedy():
    weight, optimizer = one_weight()
    engine, _ = run(Update(optimizer), lambda batch: (weight * 1.0,))
    with pytest.raises(RuntimeError, match=r"write `if state.training:` before it"):
        engine.evaluate([1])


def test_a_handler_may_skip_a_step():
    weight, optimizer = one_weight()
    engine, gradients = run(Update(optimizer), lambda batch: (weight * batch,))

    @engine.on(Events.BACKWARD_COMPLETED)
    def judge(state):
        if weight.grad > 5:
            state.skip_step()

    seen = []
    engine.on(Events.STEP_SKIPPED(every=2))(lambda state: seen.append(state.iteration))
    state = engine.run([1.0, 9.0, 2.0, 9.0, 3.0], max_epochs=1)
    assert gradients == [1.0, 2.0, 3.0]
    assert (state.step, state.counts[Events.STEP_SKIPPED], seen) == (3, 2, [4])
    assert weight.item() == -6.0


def quadratic():
    torch.manual_seed(0)
    inputs, targets = torch.randn(12, 3, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    return weight, lambda rows: ((inputs[rows] @ weight - targets[rows]) ** 2).mean()


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_optimizer_that_evaluates_again_gets_the_loss_of_the_window(search, accumulate):
    def options(weight):
        return torch.optim.LBFGS([weight], lr=0.5, max_iter=4, line_search_fn=search)

    weight, loss_of = quadratic()
    update, calls = Update(options(weight), accumulate=accumulate), []

    def process(state, rows):
        def closure():
            calls.append(state.iteration)
            return loss_of(rows)

        update(state, closure(), closure=closure)

    engine, ready = Engine(process), []
    engine.on(Events.GRADIENTS_READY)(lambda state: ready.append(state.step))
    state = engine.run([range(0, 6), range(6, 12)], max_epochs=3)

    expected, loss_of = quadratic()
    optimizer, evaluations = options(expected), []
    windows = [[range(0, 6)], [range(6, 12)]] if accumulate == 1 else [[range(0, 6), range(6, 12)]]
    for window in windows * 3:

        def closure(window=window):
            evaluations.append(1)
            optimizer.zero_grad()
            loss = sum(loss_of(rows) for rows in window) / len(window)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert torch.allclose(weight, expected, rtol=0, atol=1e-9)
    assert len(calls) == len(evaluations) * accumulate  # not one evaluation more
    assert ready == list(range(state.step))  # once a step, with the first evaluation's gradients


@pytest.mark.parametrize(
    ("kind", "needs"),
    [(torch.optim.SGD, False), (torch.optim.AdamW, False), (torch.optim.LBFGS, True)],
)
def test_an_optimizer_that_needs_a_closure_is_known_by_its_signature(kind, needs):
    optimizer = kind([one_weight()[0]])
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # which wraps step()
    assert Update(optimizer).needs_closure is needs


def test_such_an_optimizer_without_a_closure_is_an_error_that_names_the_remedy():
    weight, _ = one_weight()
    optimizer = torch.optim.LBFGS([weight])
    engine, _ = run(Update(optimizer), lambda batch: (weight * 1.0,))
    with pytest.raises(TypeError, match=r"pass update\(state, loss, closure=...\)"):
        engine.run([1], max_epochs=1)
    with pytest.raises(ValueError, match="works neither with a gradient scaler"):
        Update(optimizer, scaler=torch.amp.GradScaler("cpu"))


@pytest.mark.parametrize(("offset", "saved"), [(0, [4]), (1, [20])])
def test_windows_that_overlap_for_ever_put_a_save_off_to_the_end_and_say_so(offset, saved, caplog):
    (weight, optimizer), (other, other_optimizer) = one_weight(), one_weight()
    update = Update(optimizer, accumulate=2)
    update_other = Update(other_optimizer, accumulate=4, event=GanEvents.CRITIC_UPDATED)

    def process(state, batch):
        update(state, weight * 1.0)
        if state.iteration > offset:
            update_other(state, other * 1.0)

    engine, saves = Engine(process), []
    engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.save("now"))
    engine.on(Events.SAVING)(lambda state: saves.append(state.iteration))
    engine.run(range(20), max_epochs=1)
    assert saves == saved
    told = [each.getMessage() for each in caplog.records if "take turns" in each.getMessage()]
    assert len(told) == (offset == 1)


@pytest.mark.parametrize("event", [Events.ITERATION_STARTED, Events.GRADIENTS_READY])
def test_a_step_is_skipped_where_its_gradients_are_judged_and_nowhere_else(event):
    weight = torch.nn.Parameter(torch.tensor(1.0))
    update = Update(torch.optim.SGD([weight], lr=1.0))
    engine = Engine(lambda state, batch: update(state, weight * batch))
    engine.on(Events.BACKWARD_COMPLETED(at=1))(lambda state: state.skip_step())
    engine.on(event)(lambda state: state.iteration == 2 and state.skip_step())
    with pytest.raises(RuntimeError, match=r"skip_step\(\) has no gradients to discard here"):
        engine.run([1.0, 1.0, 1.0], max_epochs=1)
    assert weight == 1


def test_several_micro_batches_of_one_batch_are_told_since_the_last_batch_cuts_their_windows():
    weight, optimizer = one_weight()

    def four(update):
        return Engine(lambda state, batch: [update(state, weight * 1.0) for _ in range(4)], update)

    with pytest.warns(UserWarning, match=r"calls Update\(accumulate=2\) several times") as told:
        state = four(Update(optimizer, accumulate=2)).run([1, 2, 3], max_epochs=2)
    assert len(told) == 1
    assert state.step == 2 * (2 + 2 + 4)
    # Where a last batch is not known, no window is cut.
    assert four(Update(optimizer, accumulate=2)).run(iter([1, 2, 3]), max_epochs=1).step == 6
    assert four(Update(optimizer)).run([1, 2, 3], max_epochs=1).step == 12


@pytest.mark.parametrize("is_sum", [False, True])
def test_parts_of_micro_batches_make_the_same_steps_in_every_batch_as_a_loop(is_sum):
    data = [torch.randn(size, 2) for size in (8, 8, 5)]

    def script():
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 1).double()
        return model, torch.optim.SGD(model.parameters(), 0.1)

    model, optimizer = script()
    update = Update(optimizer)

    def two_epochs(state, batch):
        for _ in range(2):
            with update.micro_batch(state) as micro:
                for part in batch.double().split(2):
                    errors = model(part).square()
                    loss = errors.sum() if is_sum else errors.sum() / len(batch)
                    micro.backward(loss, is_sum=is_sum)
                micro.count(loss, weight=len(batch) if is_sum else None)

    state = Engine(two_epochs, update, objects={"model": model}).run(data, max_epochs=1)
    assert state.step == 6
    by_hand, optimizer = script()
    for batch in data:
        for _ in range(2):
            optimizer.zero_grad()
            for part in batch.double().split(2):
                errors = by_hand(part).square()
                (errors.sum() if is_sum else errors.sum() / len(batch)).backward()
            if is_sum:
                for each in by_hand.parameters():
                    each.grad *= 1 / len(batch)
            optimizer.step()
    assert all(map(torch.equal, model.parameters(), by_hand.parameters()))
