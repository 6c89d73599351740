"""The pieces of schedules: exact ends, joints without a gap, and the length of the run."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft import Engine, Events, Update
from camshaft.handlers.schedules import (
    cosine,
    curve,
    exponential,
    hold,
    inverse,
    inverse_sqrt,
    linear,
    noam,
    polynomial,
    restarts,
    sqrt,
    tri_stage,
    warmup,
    warmup_stable_decay,
)
from camshaft.handlers.schedules.horizon import horizon_of
from camshaft.handlers.schedules.pieces import DECAYS

FALLING = {
    "linear": linear,
    "cosine": cosine,
    "sqrt": sqrt,
    "exponential": exponential,
    "inverse": inverse,
    "polynomial": lambda final, length=None: polynomial(1.5, final=final, length=length),
}
kinds = st.sampled_from(sorted(FALLING))
finals = st.floats(1e-3, 0.89)  # from 0.9 on, exponential() warns


@given(kind=kinds, final=finals, warm=st.integers(0, 50), rest=st.integers(1, 80))
def test_the_peak_is_at_the_end_of_the_warm_up_and_the_end_is_exact(kind, final, warm, rest):
    plan = warmup(warm).then(FALLING[kind](final)).plan(warm + rest)
    factors = [plan(step) for step in range(warm + rest + 10)]
    assert factors[warm] == 1.0
    assert factors[0] == (0.0 if warm else 1.0)
    assert factors[warm + rest :] == [final] * 10
    assert factors[: warm + 1] == sorted(factors[: warm + 1])
    assert factors[warm:] == sorted(factors[warm:], reverse=True)
    assert all(0.0 <= factor <= 1.0 for factor in factors)


@given(
    falls=st.lists(st.tuples(kinds, finals, st.integers(20, 60)), min_size=1, max_size=4),
    cooldown=st.integers(1, 20),
)
def test_each_piece_begins_where_the_one_before_has_ended(falls, cooldown):
    schedule = warmup(20)
    for kind, final, length in falls:
        schedule = schedule.then(FALLING[kind](final, length=length))
    plan = schedule.then(hold(cooldown)).plan()
    factors = [plan(step) for step in range(plan.joints[-1])]
    assert factors[-cooldown:] == [falls[-1][1]] * cooldown
    for joint, (_, final, _) in zip(plan.joints[2:], falls, strict=False):
        assert plan(joint) == final
        late = [plan(joint - n) for n in (2, 1, 0)]
        assert min(late) <= late[1] <= max(late)


@pytest.mark.parametrize("decay", sorted(DECAYS))
def test_the_stable_phase_of_warmup_stable_decay_is_the_rate_itself(decay):
    schedule = warmup_stable_decay(0.1, decay_length=0.1, decay=decay, final=0.01)
    assert schedule.plan(100).joints == (0, 10, 90, 100)
    factors = schedule.factors(100)
    assert factors[10:91] == [1.0] * 81
    assert all(a > b for a, b in pairwise(factors[90:]))
    assert schedule.plan(100)(100) == 0.01


def test_a_cosine_with_warm_up_and_cool_down_does_not_drop():
    factors = warmup(10).then(cosine(0.1)).then(hold(20)).factors(100)
    assert factors[10] == 1.0
    assert factors[80:] == [0.1] * 20
    assert max(a - b for a, b in pairwise(factors[10:])) < math.pi / 2 / 70
    assert factors[45] == pytest.approx(0.55)


def test_restarts_are_longer_and_lower():
    plan = warmup(100, start=0.2).then(restarts(80, final=0.2, cycle_mul=1.2, lr_mul=0.5)).plan()
    assert (plan(0), plan(50), plan(100)) == (0.2, pytest.approx(0.6), 1.0)
    assert (plan(180), plan(276)) == (0.5, 0.25)
    assert plan(140) == pytest.approx(0.6)
    assert plan(179) == pytest.approx(0.2, abs=0.01)
    assert plan(180 + 48) == pytest.approx(0.3)


def test_what_follows_whole_cycles_begins_at_their_end():
    assert restarts(10, final=0.5).then(hold(5)).factors(35)[30:] == [0.5] * 5


def test_tri_stage():
    plan = tri_stage().plan(1000)
    assert plan.joints == (0, 100, 500, 1000)
    assert (plan(0), plan(100), plan(500), plan(1000)) == (0.01, 1.0, 1.0, 0.01)
    assert plan(750) == pytest.approx(0.1)


def test_polynomial_is_a_power_of_what_is_left():
    plan = polynomial(1.5, final=0.2).plan(100)
    assert plan(36) == pytest.approx(0.2 + 0.8 * 0.64**1.5)
    assert plan(100) == 0.2


def test_noam_is_the_schedule_of_the_paper():
    plan = noam(512, warmup_steps=4000).plan()
    assert plan(3999) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert plan(0) == pytest.approx(512**-0.5 * 4000**-1.5)
    assert plan(15999) == pytest.approx(512**-0.5 * 16000**-0.5)
    assert noam(4, warmup_steps=0).plan()(0) == 0.5


def test_inverse_sqrt_peaks_at_the_warm_up_and_falls_by_the_root():
    plan = inverse_sqrt(100, start=0.1).plan()
    assert (plan(0), plan(100), plan(400), plan(10_000)) == (0.1, 1.0, 0.5, 0.1)
    assert inverse_sqrt(100).then(linear(length=0.5)).factors(800)[600] == pytest.approx(0.25)


def test_the_square_root_falls_fast_and_the_inverse_is_a_line_of_its_own():
    assert sqrt().plan(100)(25) == 0.5
    assert inverse(0.1).plan(100)(50) == pytest.approx(1 / 5.5)


def test_a_function_of_ones_own_is_a_piece():
    def bump(progress):
        return 1 - progress**2

    schedule = warmup(10).then(curve(bump))
    assert schedule.factors(20)[15] == 0.75
    assert repr(schedule) == "warmup(10).then(curve(bump))"


@pytest.mark.parametrize(
    "schedule",
    [
        warmup(3, start=0.1).then(cosine(0.1, length=0.5)).then(hold(5)),
        tri_stage(),
        warmup_stable_decay(5, decay_length=0.2, decay="inverse", final=0.1),
        restarts(10, final=0.1, cycle_mul=2.0, lr_mul=0.5),
        inverse_sqrt(4, start=0.5),
        noam(8, warmup_steps=4),
        polynomial(2.0, final=0.1, length=7).then(linear(0.5, length=3, start=0.2)),
    ],
    ids=repr,
)
def test_a_schedule_is_written_as_it_is_made(schedule):
    assert eval(repr(schedule)) == schedule


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: warmup(1000.0), "1000.0 is no length"),
        (lambda: cosine(length=-1), "-1 is no length"),
        (lambda: warmup(9).then(cosine(100)), r"length of 100 write cosine\(\.\.\., length=100\)"),
        (lambda: hold().then(cosine()), "give all but one a length"),
        (lambda: exponential(0.0), "needs a final factor above 0"),
        (lambda: polynomial(0), "needs a number above 0"),
        (lambda: polynomial(1000), r"at most 10.* a length is polynomial\(2\.0, length=\.\.\.\)"),
        (lambda: exponential(1000), r"for this factor exponential\(1000\.0\)"),
        (lambda: restarts(0), "whole number of steps a cycle"),
        (lambda: inverse_sqrt(0.1), "whole number of steps"),
        (
            lambda: warmup_stable_decay(1, decay_length=1, decay="square"),
            "needs one of sqrt, linear",
        ),
        (lambda: warmup(60).then(cosine(length=0.5)).plan(100), "takes 110 steps, and the run has"),
        (lambda: cosine().plan(), "depends on how long the run is"),
    ],
)
def test_what_cannot_be_meant_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_final_factor_that_looks_like_a_factor_a_step_is_told_of():
    with pytest.warns(UserWarning, match=r"partial\(ExponentialLR, gamma=0\.95\)"):
        exponential(0.95)


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), st.integers(1, 1000))
def test_fractions_of_the_whole_fill_it_exactly(parts, total):
    schedule = warmup(parts[0] / sum(parts))
    for part in parts[1:]:
        schedule = schedule.then(linear(length=part / sum(parts)))
    joints = schedule.plan(total).joints
    assert joints[0] == 0
    assert joints[-1] == total
    assert list(joints) == sorted(joints)


def test_a_schedule_knows_whether_it_depends_on_the_length_of_the_run():
    assert cosine().needs_total
    assert warmup(0.1).then(hold()).needs_total
    assert inverse_sqrt(10).then(linear(length=5)).needs_total
    assert not warmup(10).then(hold()).needs_total
    assert not warmup(10).then(cosine(length=90)).needs_total
    assert not inverse_sqrt(10).needs_total


def test_only_schedules_follow():
    with pytest.raises(TypeError, match="needs a schedule, such as"):
        warmup(3).then(5)


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


@pytest.mark.parametrize("given", [(0, 4000), (512, -1)])
def test_noam_of_a_model_without_width_is_refused(given):
    with pytest.raises(ValueError, match=r"^noam\(.*\): needs the width of the model, from 1"):
        noam(given[0], warmup_steps=given[1])
