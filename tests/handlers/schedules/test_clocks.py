"""Schedulers whose lengths are on another clock than the one that steps them."""

import warnings
from functools import partial

import pytest
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from camshaft import Events
from camshaft.handlers.schedules import cosine, warmup

EPOCHS = r"write LRSchedule\(\.\.\., when=Events.EPOCH_COMPLETED\) to step it after each epoch"
BY_EPOCHS = {
    "step": lambda o: StepLR(o, 2, 0.1),
    "exponential": lambda o: ExponentialLR(o, 0.7),
    "milestones": lambda o: MultiStepLR(o, [3, 6], 0.1),
    "cosine": lambda o: CosineAnnealingLR(o, 8),
    "restarts": lambda o: CosineAnnealingWarmRestarts(o, 4),
    "polynomial": lambda o: PolynomialLR(o, 8),
    "linear": lambda o: LinearLR(o, 1.0, 0.1, total_iters=8),
    "sequence": lambda o: SequentialLR(o, [LinearLR(o, 0.1, 1, 2), CosineAnnealingLR(o, 6)], [2]),
    "decay after warm-up": lambda o: SequentialLR(
        o, [LinearLR(o, 0.1, 1, 2), ExponentialLR(o, 0.7)], [2]
    ),
    "chain": lambda o: ChainedScheduler([LinearLR(o, 0.1, 1, 2), CosineAnnealingLR(o, 8)]),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter")  # SequentialLR of torch 2.8
@pytest.mark.parametrize("kind", BY_EPOCHS)
def test_a_scheduler_by_epochs_on_the_clock_of_steps_is_told_before_the_first_step(small, kind):
    script = small().add(BY_EPOCHS[kind])
    with pytest.warns(UserWarning, match=EPOCHS) as caught:
        script.run(10, max_epochs=8)
    assert len([each for each in caught if "The epoch parameter" not in str(each.message)]) == 1


@pytest.mark.parametrize("kind", BY_EPOCHS)
def test_the_same_scheduler_on_the_clock_of_epochs_or_asked_for_by_steps_is_right(small, kind):
    small().add(BY_EPOCHS[kind], when=Events.EPOCH_COMPLETED).run(10, max_epochs=8)
    small().add(BY_EPOCHS[kind], when=Events.STEP_COMPLETED).run(10, max_epochs=8)


BY_STEPS = {
    "step": lambda o: StepLR(o, 30, 0.1),
    "step each": lambda o: StepLR(o, 1, 0.95),
    "exponential": lambda o: ExponentialLR(o, 0.95),
    "milestones": lambda o: MultiStepLR(o, [40, 60], 0.1),
    "cosine": lambda o: CosineAnnealingLR(o, 80),
    "cosine to the last step": lambda o: CosineAnnealingLR(o, 79),
    "short cosine": lambda o: CosineAnnealingLR(o, 20),
    "one cycle": lambda o: OneCycleLR(o, 0.1, 81),
    "warm-up": lambda o: LinearLR(o, 0.1, 1, total_iters=8),
    "constant": lambda o: ConstantLR(o, 0.1, 8),
    "sequence": lambda o: SequentialLR(o, [LinearLR(o, 0.1, 1, 8), CosineAnnealingLR(o, 72)], [8]),
    "chain": lambda o: ChainedScheduler([LinearLR(o, 0.1, 1, 8), ExponentialLR(o, 0.99)]),
    "of the horizon": lambda o, horizon: CosineAnnealingLR(o, horizon.steps),
    "partial": partial(StepLR, step_size=30),
    "pieces": warmup(8).then(cosine()),
    "short pieces": warmup(4).then(cosine(length=4)),
}


@pytest.mark.parametrize("kind", BY_STEPS)
def test_a_scheduler_by_steps_is_right(small, kind):
    made = BY_STEPS[kind]
    small().add(made).run(10, max_epochs=8)


def test_what_ends_with_the_one_epoch_of_a_run_or_follows_a_metric_is_right(small):
    small().add(lambda o: StepLR(o, 2, 0.1)).run(30, max_epochs=1)
    script = small(by_hand=lambda state: state.metrics.update(score=1.0))
    script.add(lambda o: ReduceLROnPlateau(o, patience=20), metric="score").run(10, max_epochs=8)


@pytest.mark.parametrize("is_known", [True, False])
def test_lengths_in_batches_where_several_make_a_step_are_told(small, is_known):
    script = small(accumulate=4, is_known=is_known).add(lambda o: CosineAnnealingLR(o, 80))
    with pytest.warns(UserWarning, match="80 of its steps, which are the batches of this run"):
        script.run(10, max_epochs=8)
    script = small(accumulate=4, is_known=is_known).add(lambda o: CosineAnnealingLR(o, 24))
    script.run(10, max_epochs=8)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: CosineAnnealingLR(o, 80),
        lambda o: CosineAnnealingLR(o, 88),  # another rounding of the same number
        lambda o: OneCycleLR(o, 0.1, epochs=8, steps_per_epoch=10),
        lambda o, horizon: CosineAnnealingLR(o, horizon.steps),
    ],
    ids=["cosine", "about", "one cycle", "horizon"],
)
def test_a_scheduler_by_steps_on_the_clock_of_epochs_is_told(small, make):
    script = small().add(make, when=Events.EPOCH_COMPLETED)
    with pytest.warns(UserWarning, match="leave when= out to step it after each optimizer step"):
        script.run(10, max_epochs=8)


def test_a_short_run_of_a_script_with_a_long_schedule_by_epochs_is_right(small):
    script = small().add(lambda o: CosineAnnealingLR(o, 200), when=Events.EPOCH_COMPLETED)
    script.run(10, max_epochs=2)


def test_a_run_of_unknown_length_is_told_after_its_first_epoch(small):
    script = small(is_known=False).add(lambda o: StepLR(o, 2, 0.1))
    epochs = []
    script.engine.on(Events.EPOCH_STARTED)(lambda state: epochs.append(state.epoch))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="half of them have less than"):
            script.run(10, max_epochs=8)
    assert epochs == [1]


def test_a_resumed_run_is_not_told_again(small):
    script = small().add(lambda o: StepLR(o, 2, 0.1)).pause(5)
    with pytest.warns(UserWarning, match="every 2 steps"):
        state = script.run(10, max_epochs=8)
    assert script.run(10, max_epochs=8, state=state).iteration == 80
