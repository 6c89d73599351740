"""Torch's schedulers: how far they are and what they move."""

import pytest
import torch
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from camshaft.handlers.common import advance, fields_of, given, read, steps_of, write

KINDS = {
    "cosine": lambda o: CosineAnnealingLR(o, 20),
    "sequence": lambda o: SequentialLR(o, [LinearLR(o, 0.1), CosineAnnealingLR(o, 15)], [5]),
    "chain": lambda o: ChainedScheduler([LinearLR(o, 0.1), ExponentialLR(o, 0.9)]),
}


def optimizer(kind=SGD, **options):
    return kind([torch.nn.Parameter(torch.zeros(1))], 0.5, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_scheduler_goes_to_where_another_one_is(kind):
    first, second = optimizer(), optimizer()
    old, new = KINDS[kind](first), KINDS[kind](second)
    for _ in range(7):
        first.step()
        old.step()
    advance(new, old.state_dict())
    assert steps_of(new.state_dict()) == steps_of(old.state_dict()) == 7
    assert first.param_groups[0]["lr"] == second.param_groups[0]["lr"]


def test_a_plateau_has_nowhere_to_go():
    made = optimizer()
    scheduler = ReduceLROnPlateau(made)
    advance(scheduler, {"last_epoch": 5, "num_bad_epochs": 3})
    assert scheduler.last_epoch == 0


def test_what_a_group_was_given_is_known_when_schedules_have_moved_it():
    group = optimizer(AdamW).param_groups[0]
    group |= {"initial_lr": 0.5, "initial_betas.0": 0.9}
    write(group, "lr", 0.1)
    write(group, "betas.0", 0.5)
    assert (read(group, "lr"), group["betas"]) == (0.1, (0.5, 0.999))
    assert given(group)["lr"] == 0.5
    assert given(group)["betas"] == (0.9, 0.999)
    assert not [key for key in given(group) if key.startswith("initial")]


def test_a_scheduler_says_what_it_moves():
    scheduler = KINDS["cosine"](optimizer())
    assert "lr" in fields_of(scheduler)
    scheduler.field = "betas.0"
    assert fields_of(scheduler) == ("betas",)
