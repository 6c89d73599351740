"""A guard that skips steps with gradients far larger than the latest ones, or goes back."""

import logging

import pytest
import torch

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.handlers import EMA, Checkpoint, LRSchedule, NonFiniteGuard, SpikeGuard
from camshaft.handlers.schedules import linear

CALM = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
SPIKE = 50.0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return self.weight * x


def build(guard, *handlers, accumulate=1):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    update = Update(optimizer, accumulate=accumulate)
    weights = []

    def process(state, x):
        update(state, model(torch.tensor(x)))

    engine = Engine(process, update, objects={"model": model, "optimizer": optimizer})
    engine.add(guard, *handlers)
    engine.on(Events.ITERATION_COMPLETED)(lambda state: weights.append(model.weight.item()))
    return engine, model, weights


def test_a_spike_makes_no_step_and_the_next_batch_does(caplog):
    engine, model, weights = build(SpikeGuard(window=5))
    state = engine.run([*CALM, SPIKE, 1.0], max_epochs=1)
    expected, calm, _ = build(SpikeGuard(window=5))
    expected.run([*CALM, 1.0], max_epochs=1)
    assert torch.equal(model.weight, calm.weight)
    assert weights[6] == weights[5]
    assert (state.step, state.counts[Events.STEP_SKIPPED], state.metrics["spikes"]) == (7, 1, 1)
    assert "the gradient norm of iteration 7 is 50" in caplog.text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_a_spike_from_the_first_step_on(value):
    engine, model, _ = build(SpikeGuard(window=2))
    state = engine.run([value, 1.0, 1.0, value, 1.0], max_epochs=1)
    assert state.metrics["spikes"] == 2
    assert model.weight.isfinite()


def test_the_first_steps_are_not_judged_and_a_slow_rise_is_no_spike():
    engine, *_ = build(SpikeGuard(window=4))
    data = [100.0, 1.0, 1.0, 50.0, 20.0, 22.0, 24.0, 26.0, 28.0]
    assert engine.run(data, max_epochs=1).step == len(data)


def test_a_new_level_ends_in_an_error_that_says_what_to_look_at():
    engine, *_ = build(SpikeGuard(window=5, limit=2))
    with pytest.raises(
        FloatingPointError, match="3 steps in a row have a gradient norm above .* larger deviations"
    ):
        engine.run([*CALM, SPIKE, SPIKE, SPIKE, SPIKE], max_epochs=1)


def test_spikes_with_a_step_between_them_are_not_in_a_row():
    engine, *_ = build(SpikeGuard(window=5, limit=2))
    state = engine.run([*CALM, *[SPIKE, SPIKE, 1.0] * 3], max_epochs=1)
    assert (state.metrics["spikes"], state.step) == (6, 9)


def test_with_rewind_weights_and_momentum_go_back_and_clocks_rates_and_data_go_on(caplog):
    rates = []
    engine, _, weights = build(
        SpikeGuard("rewind", window=3, steps=2), LRSchedule(linear(0.0)), EMA(0.5)
    )
    momenta, optimizer = [], engine.objects["optimizer"]
    [group] = optimizer.param_groups

    @engine.on(Events.ITERATION_COMPLETED)
    def note(state):
        momenta.append(optimizer.state_dict()["state"][0]["momentum_buffer"].clone())
        rates.append(optimizer.param_groups[0]["lr"])

    with caplog.at_level(logging.WARNING, "camshaft"):
        state = engine.run([*CALM, 1.0, SPIKE, 1.0, 1.0], max_epochs=1)
    # Copies were made after steps 4 and 6; iteration 8 goes back to step 4.
    assert weights[7] == weights[3] != weights[6]
    assert torch.equal(momenta[7], momenta[3])
    assert not torch.equal(momenta[6], momenta[3])
    assert (state.iteration, state.step) == (10, 9)
    assert rates[8] < rates[6]  # the schedule goes on
    assert optimizer.param_groups[0] is group  # which a script may hold
    assert "the weights go back to those of step 4" in caplog.text


def test_a_second_spike_after_going_back_goes_to_the_same_copy():
    engine, _, weights = build(SpikeGuard("rewind", window=3, steps=2))
    engine.run([*CALM, SPIKE, SPIKE, 1.0], max_epochs=1)
    assert weights[6] == weights[7] == weights[3]


def test_buffers_go_back_too_also_beside_a_guard_that_puts_back_buffers_of_one_step():
    engine, model, _ = build(SpikeGuard("rewind", window=3, steps=2), NonFiniteGuard("skip"))
    engine.run([*CALM, SPIKE], max_epochs=1)
    assert model.seen.item() == 4


@pytest.mark.parametrize("options", [{}, {"policy": "rewind", "steps": 2}])
@pytest.mark.parametrize("stop", [3, 6, 8])
def test_a_resumed_run_judges_and_goes_back_as_the_run_that_was_never_interrupted(
    options, stop, tmp_path
):
    data = [*CALM, 1.0, SPIKE, 1.0, 0.9, SPIKE, 1.0]
    whole, expected, _ = build(SpikeGuard(**options, window=3))
    whole.run(data, max_epochs=1)

    def part(interrupt):
        guard = SpikeGuard(**options, window=3)
        engine, model, _ = build(guard, Checkpoint(tmp_path, resume=True))
        if interrupt:
            engine.on(Events.ITERATION_COMPLETED(at=stop))(lambda state: state.interrupt("test"))
        state = engine.run(data, max_epochs=1)
        return model, state

    part(True)
    model, state = part(False)
    assert state.iteration == len(data)
    assert torch.equal(model.weight, expected.weight)
    assert torch.equal(model.seen, expected.seen)


def test_what_cannot_work_is_refused_when_it_is_made_or_attached():
    with pytest.raises(ValueError, match="needs 'skip' or 'rewind'"):
        SpikeGuard("back")
    with pytest.raises(ValueError, match=r"SpikeGuard\(window=1\): needs a number above 1"):
        SpikeGuard(window=1)
    with pytest.raises(ValueError, match="'skip' makes none; leave steps= out"):
        SpikeGuard("skip", steps=10)
    with pytest.raises(ValueError, match="needs the model and its optimizer"):
        Engine(lambda state, batch: None, SpikeGuard("rewind"))


def test_a_loss_that_is_written_after_the_update_is_an_error_with_the_line_to_move():
    weight = torch.nn.Parameter(torch.tensor(1.0))
    update = Update(torch.optim.SGD([weight], lr=0.1))

    def process(state, x):
        loss = weight * x
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    with pytest.raises(LookupError, match="written are: none.*goes above update"):
        Engine(process, update, SpikeGuard(metric="loss")).run([1.0], max_epochs=1)


def test_a_loss_of_an_earlier_step_is_not_judged_again():
    weight = torch.nn.Parameter(torch.tensor(1.0))
    update = Update(torch.optim.SGD([weight], lr=0.1))

    def process(state, x):
        loss = weight * x
        if state.iteration == 1:
            state.metrics["loss"] = loss.detach()
        update(state, loss)

    engine = Engine(process, update, SpikeGuard(metric="loss"))
    with pytest.raises(LookupError, match="this step has not written it"):
        engine.run([1.0, 1.0], max_epochs=1)


def test_a_metric_with_another_name_is_an_error_with_the_names_that_the_step_has_written():
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(SpikeGuard(metric="los"))
    batch = (torch.ones(2, 1), torch.ones(2, 1))
    with pytest.raises(LookupError, match="'los' of each step.*written are: loss"):
        engine.run([batch], max_epochs=1)


def test_ranks_decide_together_by_the_norm_of_what_they_average_or_by_the_mean_loss(processes):
    script = """
        import ignite.distributed as idist
        import torch
        from torch.nn.parallel import DistributedDataParallel
        from camshaft import Engine, Update
        from camshaft.handlers import SpikeGuard

        idist.initialize("gloo")
        calm = [1.0, 1.1, 0.9, 1.0]
        data = [*calm, 50.0 if idist.get_rank() else 1.0, 1.0]

        def run(guard, wrap):
            net = torch.nn.Linear(1, 1, bias=False)
            torch.nn.init.ones_(net.weight)
            model = DistributedDataParallel(net) if wrap else net
            update = Update(torch.optim.SGD(net.parameters(), lr=0.1), model=model)

            def process(state, x):
                with update.micro_batch(state):
                    loss = model(torch.tensor([x])).sum()
                    state.metrics["loss"] = loss.detach() * 0 + x
                    update(state, loss)

            state = Engine(process, update, guard).run(data, max_epochs=1)
            print(state.step, state.metrics["spikes"], net.weight.item() if wrap else "")

        run(SpikeGuard(window=4), True)
        run(SpikeGuard(window=4, metric="loss"), True)
        run(SpikeGuard(window=4), False)  # gradients of ranks differ, and the decision does not
        del run
        idist.finalize()
    """
    one, other = (result.stdout for result in processes.run_ranks(2, script))
    assert one == other
    assert [line[:3] for line in one.splitlines()] == ["5 1"] * 3


def test_the_whole_window_is_judged_and_the_loss_plays_no_part(caplog):
    weight = torch.nn.Parameter(torch.tensor(1.0))
    update = Update(torch.optim.SGD([weight], lr=0.1), accumulate=2)
    seen = []

    def process(state, slope):
        update(state, weight * slope - weight.detach() * slope)  # the loss is always 0
        seen.append(weight.item())

    slopes = [1.0, 1.0, 0.9, 1.1, 1.0, 1.0, 50.0, 1.0, 1.0, 1.0]
    state = Engine(process, update, SpikeGuard(window=3)).run(slopes, max_epochs=1)
    assert (state.step, state.metrics["spikes"]) == (4, 1)
    assert seen[7] == seen[5]  # the large slope is in the window's first half
    assert seen[9] != seen[7]
    assert "the gradient norm of iteration 8 is 25.5" in caplog.text


def test_a_metric_may_be_judged_whatever_the_gradients_are(caplog):
    weight = torch.nn.Parameter(torch.tensor(1.0))
    update = Update(torch.optim.SGD([weight], lr=0.1))

    def process(state, x):
        state.metrics["loss"] = x
        update(state, weight * 1.0)

    guard = SpikeGuard(metric="loss", window=3)
    state = Engine(process, update, guard).run([*CALM, SPIKE, 1.0], max_epochs=1)
    assert (state.step, state.metrics["spikes"]) == (7, 1)
    assert "the loss of iteration 7 is 50" in caplog.text


class Gan(EventEnum):
    CRITIC_UPDATED = "critic_updated"


def test_each_optimizer_is_judged_by_its_own_steps():
    small, large = (torch.nn.Parameter(torch.tensor(1.0)) for _ in range(2))
    updates = [
        Update(torch.optim.SGD([each], lr=0.1), event=event)
        for each, event in ((small, Events.STEP_COMPLETED), (large, Gan.CRITIC_UPDATED))
    ]

    def process(state, x):
        updates[0](state, small * x)
        updates[1](state, large * x * 1000)

    objects = {"small": updates[0].optimizer, "large": updates[1].optimizer}
    engine = Engine(process, *updates, SpikeGuard(window=4), objects=objects)
    state = engine.run([*CALM, 500.0, 1.0], max_epochs=1)
    assert state.metrics["spikes"] == 2  # 500 is far below what is usual of the other one


def test_weights_whose_shapes_have_changed_stay_and_the_step_is_skipped(caplog):
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(SpikeGuard("rewind", steps=2, window=3))

    @engine.on(Events.ITERATION_STARTED(at=6))
    def grow(state):
        model.weight = torch.nn.Parameter(model.weight.detach().repeat(3, 1))
        optimizer.param_groups[0]["params"] = [model.weight]

    def batch(size, rows=1):
        return torch.ones(4, 2) * size, torch.zeros(4, rows)

    engine.run([batch(1.0)] * 5 + [batch(1e6, 3)] + [batch(1.0, 3)] * 3, max_epochs=1)
    assert "the weights stay: parameters have other shapes than in the copy" in caplog.text
    assert model.weight.shape == (3, 2)
    assert model.weight.abs().max() < 1
