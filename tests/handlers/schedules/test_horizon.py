"""How long a run is going to be, held against runs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft import Engine, EventEnum, Events, Update
from camshaft.handlers.schedules.horizon import Horizon, horizon_of


class Own(EventEnum):
    CRITIC_UPDATED = "critic_updated"


def update_of(accumulate, event=Events.STEP_COMPLETED):
    weight = torch.nn.Parameter(torch.zeros(()))
    update = Update(torch.optim.SGD([weight], 0.1), accumulate=accumulate, event=event)
    return weight, update


def run(accumulate, length, epoch_length=None, **limits):
    """The horizon as it was known when the run was loading, and the run's state."""
    weight, update = update_of(accumulate)
    engine = Engine(lambda state, batch: update(state, weight * batch), update)
    seen = []
    engine.on(Events.LOADING)(lambda state: seen.append(horizon_of(state, update.optimizer)))
    state = engine.run([1.0] * length, epoch_length=epoch_length, **limits)
    return seen[0], state


@settings(max_examples=60, deadline=None)
@given(
    accumulate=st.integers(1, 4),
    length=st.integers(1, 7),
    epoch_length=st.none() | st.integers(1, 9),
    epochs=st.none() | st.integers(1, 4),
    iterations=st.none() | st.integers(1, 20),
    steps=st.none() | st.integers(1, 12),
)
def test_what_is_foreseen_is_what_the_run_comes_to(
    accumulate, length, epoch_length, epochs, iterations, steps
):
    if epochs is iterations is steps is None:
        epochs = 2
    horizon, state = run(
        *(accumulate, length, epoch_length),
        **{"max_epochs": epochs, "max_iterations": iterations, "max_steps": steps},
    )
    assert horizon.steps == state.step
    assert horizon.epochs == state.epoch
    assert horizon.steps_per_epoch == -(-(epoch_length or length) // accumulate)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    length=st.integers(1, 7),
    steps=st.integers(1, 12),
)
def test_each_optimizer_has_the_horizon_of_its_own_steps(sizes, length, steps):
    (first, main), (second, critic) = update_of(sizes[0]), update_of(sizes[1], Own.CRITIC_UPDATED)

    def step(state, batch):
        main(state, first * batch)
        critic(state, second * batch)

    engine = Engine(step, main, critic)
    seen = {}

    @engine.on(Events.LOADING)
    def look(state):
        seen.update(
            main=horizon_of(state, main.optimizer), critic=horizon_of(state, critic.optimizer)
        )

    state = engine.run([1.0] * length, max_steps=steps)
    if sizes[0] == sizes[1]:
        assert seen["main"].steps == state.step == steps
    assert seen["critic"].steps <= state.counts[Own.CRITIC_UPDATED]  # a window may be open yet
    assert seen["critic"].steps >= state.counts[Own.CRITIC_UPDATED] - sizes[0]
    whole = engine.run([1.0] * length, max_epochs=2)
    assert seen["main"].steps == whole.step
    assert seen["critic"].steps == whole.counts[Own.CRITIC_UPDATED]


def test_data_of_unknown_length_needs_max_steps_or_epoch_length():
    horizon = Horizon(max_epochs=3, accumulate=2)
    for name in ("steps", "steps_per_epoch"):
        with pytest.raises(ValueError, match=r"run\(\.\.\., max_steps=\).*or epoch_length="):
            getattr(horizon, name)
    assert horizon.epochs == 3
    assert Horizon(max_steps=7).steps == Horizon(max_epochs=3, max_steps=7).steps == 7
    assert Horizon(max_iterations=9).steps == 9
    with pytest.raises(ValueError, match="max_steps="):
        _ = Horizon(max_iterations=9, accumulate=2).steps


def test_an_update_that_the_engine_does_not_know_is_asked_for():
    weight, update = update_of(2)
    engine = Engine(lambda state, batch: update(state, weight * batch))
    seen = []
    engine.on(Events.LOADING)(lambda state: seen.append(horizon_of(state, update.optimizer)))
    engine.run([1.0] * 4, max_epochs=2)
    with pytest.raises(ValueError, match=r"Engine\(train_step, update, \.\.\.\)"):
        _ = seen[0].steps
    engine.run([1.0] * 4, max_steps=2)
    assert seen[1].steps == 2
