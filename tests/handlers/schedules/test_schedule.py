"""Schedules as values: lengths, joints and what they depend on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import Linear
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from camshaft.handlers.schedules import cosine, hold, inverse_sqrt, linear, warmup


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), st.integers(1, 1000))
def test_fractions_of_the_whole_fill_it_exactly(parts, total):
    schedule = warmup(parts[0] / sum(parts))
    for part in parts[1:]:
        schedule = schedule.then(linear(length=part / sum(parts)))
    joints = schedule.plan(total).joints
    assert joints[0] == 0
    assert joints[-1] == total
    assert list(joints) == sorted(joints)


def test_the_piece_without_a_length_takes_what_is_left():
    schedule = warmup(5).then(hold()).then(linear(length=0.25))
    assert schedule.plan(40).joints == (0, 5, 30, 40)


def test_a_schedule_knows_whether_it_depends_on_the_length_of_the_run():
    assert cosine().needs_total
    assert warmup(0.1).then(hold()).needs_total
    assert inverse_sqrt(10).then(linear(length=5)).needs_total
    assert not warmup(10).then(hold()).needs_total
    assert not warmup(10).then(cosine(length=90)).needs_total
    assert not inverse_sqrt(10).needs_total


def test_a_plan_is_a_function_for_lambda_lr():
    optimizer = SGD(Linear(1, 1).parameters(), 0.5)
    scheduler = LambdaLR(optimizer, warmup(2).then(hold()).plan().__call__)
    assert scheduler.get_last_lr() == [0.0]


def test_only_schedules_follow():
    with pytest.raises(TypeError, match="needs a schedule, such as"):
        warmup(3).then(5)
