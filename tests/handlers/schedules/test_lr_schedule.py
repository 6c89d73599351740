"""Learning-rate schedules, and schedules of any field of parameter groups."""

from functools import partial

import pytest
import torch
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    LinearLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import Checkpoint, LRSchedule
from camshaft.handlers.schedules import cosine, hold, linear, warmup
from camshaft.handlers.schedules.scheduled import Scheduled


def build(make_scheduler, accumulate=1, groups=1, **arguments):
    """An engine and the list of rates that the steps used and the metric said."""
    weights = [torch.nn.Parameter(torch.zeros(())) for _ in range(groups)]
    optimizer = torch.optim.SGD([{"params": [weight]} for weight in weights], lr=0.1)
    update = Update(optimizer, accumulate=accumulate)

    def process(state, batch):
        update(state, sum(weights) * batch)

    engine = Engine(process, objects={"optimizer": optimizer})
    used, logged = [], []
    engine.on(Events.GRADIENTS_READY)(lambda state: used.append(optimizer.param_groups[0]["lr"]))
    schedule = LRSchedule(make_scheduler(optimizer), **arguments)
    engine.add(schedule)
    engine.on(Events.STEP_COMPLETED)(lambda state: logged.append(state.metrics.get("lr")))
    return engine, used, logged


def test_the_schedule_moves_after_each_step_and_the_rate_that_is_logged_is_the_one_used():
    engine, used, logged = build(lambda optimizer: StepLR(optimizer, 1, 0.5))
    engine.run([1.0] * 3, max_epochs=1)
    assert used == logged == [0.1, 0.05, 0.025]


@pytest.mark.parametrize("is_ready", [True, False])
def test_only_a_ready_made_scheduler_goes_on_in_another_run_and_that_is_told(is_ready, caplog):
    half = partial(StepLR, step_size=1, gamma=0.5)
    engine, used, _ = build(lambda optimizer: half(optimizer) if is_ready else half)
    for _ in range(2):
        engine.run([1.0] * 2, max_epochs=1)
    assert used == [0.1, 0.05, *([0.025, 0.0125] if is_ready else [0.1, 0.05])]
    assert ("begins this run at its step 2" in caplog.text) is is_ready


def test_the_schedule_moves_by_steps_and_not_by_micro_batches():
    engine, used, _ = build(lambda optimizer: StepLR(optimizer, 1, 0.5), accumulate=2)
    engine.run([1.0] * 5, max_epochs=1)
    assert used == [0.1, 0.05, 0.025]


def test_a_schedule_by_epochs_moves_once_an_epoch():
    engine, used, _ = build(
        lambda optimizer: StepLR(optimizer, 1, 0.5), when=Events.EPOCH_COMPLETED
    )
    engine.run([1.0] * 2, max_epochs=2)
    assert used == [0.1, 0.1, 0.05, 0.05]


@pytest.mark.parametrize("scores", [[1.0, 1.0, 1.0], [1.0, float("nan"), float("nan")]])
def test_a_plateau_looks_at_its_metric_once_an_epoch(scores):
    engine, used, _ = build(
        lambda optimizer: ReduceLROnPlateau(optimizer, factor=0.5, patience=1), metric="val/loss"
    )
    values = iter([*scores, 0.5])

    @engine.on(Events.ITERATION_COMPLETED)
    def score(state):
        state.metrics["val/loss"] = torch.tensor(next(values))

    engine.run([1.0], max_epochs=4)
    assert used == [0.1, 0.1, 0.1, 0.05]


@pytest.mark.parametrize(("mode", "is_told"), [("rel", True), ("abs", False)])
def test_a_plateau_below_zero_is_told_once_that_it_takes_equal_values_for_better_ones(
    mode, is_told, recwarn
):
    engine, used, _ = build(
        lambda optimizer: ReduceLROnPlateau(optimizer, patience=0, threshold_mode=mode),
        metric="likelihood",
    )

    @engine.on(Events.ITERATION_COMPLETED)
    def score(state):
        state.metrics["likelihood"] = -3.0

    engine.run([1.0], max_epochs=4)
    assert (used[-1] == 0.1) is is_told
    told = [str(each.message) for each in recwarn]
    assert ["threshold_mode='abs'" in each for each in told] == [True] * is_told


@pytest.mark.parametrize(
    ("metric", "mode", "is_told"),
    [
        ("val/accuracy", "min", True),
        ("val/accuracy", "max", False),
        ("val/loss", "min", False),
        ("val/dice_loss", "min", False),
    ],
)
def test_a_plateau_that_lowers_the_rate_while_an_accuracy_rises_is_told_of(
    metric, mode, is_told, recwarn
):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=0.1)
    LRSchedule(ReduceLROnPlateau(optimizer, mode=mode), metric=metric)
    assert ["mode='max'" in str(each.message) for each in recwarn] == [True] * is_told


def test_a_plateau_without_a_metric_and_a_metric_without_a_plateau_are_refused():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=0.1)
    with pytest.raises(ValueError, match="needs a metric to look at"):
        LRSchedule(ReduceLROnPlateau(optimizer))
    with pytest.raises(ValueError, match="StepLR looks at no metric"):
        LRSchedule(StepLR(optimizer, 1), metric="val/loss")


def test_a_metric_that_nothing_produces_is_an_error_that_lists_those_there_are():
    engine, _, _ = build(ReduceLROnPlateau, metric="val/loss")
    with pytest.raises(KeyError, match="no metric 'val/loss'") as caught:
        engine.run([1.0], max_epochs=1)
    assert "handler LRSchedule(val/loss).step" in caught.value.__notes__[0]


def test_several_groups_have_a_rate_each():
    engine, _, _ = build(lambda optimizer: StepLR(optimizer, 1, 0.5), groups=2)
    state = engine.run([1.0], max_epochs=1)
    assert state.metrics == {"lr/0": 0.1, "lr/1": 0.1}


def test_the_scheduler_is_saved_with_the_run_and_names_do_not_clash():
    engine, _, _ = build(lambda optimizer: StepLR(optimizer, 1))
    schedule = engine.handlers["LRSchedule(scheduler)"]
    assert engine.objects["scheduler"] is schedule.scheduler
    with pytest.raises(ValueError, match="give this schedule another name"):
        engine.add(LRSchedule(schedule.scheduler))


def test_a_schedule_may_have_the_name_of_the_module_that_it_is_for():
    critic = torch.nn.Linear(1, 1)
    optimizer = SGD(critic.parameters(), 0.1)
    objects = {"critic": critic, "critic_optimizer": optimizer}
    engine = Engine(lambda state, batch: state.fire(Events.STEP_COMPLETED), objects=objects)
    schedule = StepLR(optimizer, 1, 0.5)
    engine.add(LRSchedule(schedule, name="critic"))
    assert engine.objects["critic_scheduler"] is schedule
    with pytest.warns(UserWarning, match="Detected call of"):  # by torch: no step of its own
        assert engine.run([1, 2], max_epochs=1).metrics["lr/critic"] == 0.05


@pytest.mark.parametrize("name", ["", "critic", "critic_scheduler"])
def test_the_name_that_is_advised_where_one_is_taken_is_free(name):
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer = SGD([weight], 0.1)
    taken = dict.fromkeys(["scheduler_2", "critic_2_scheduler"], torch.nn.Identity())
    engine = Engine(lambda state, batch: None, objects={"optimizer": optimizer, **taken})
    engine.add(LRSchedule(StepLR(optimizer, 1), name=name))
    with pytest.raises(ValueError, match="another name: ") as caught:
        engine.add(LRSchedule(StepLR(optimizer, 1), name=name))
    *_, advised = str(caught.value).split("name='")
    engine.add(LRSchedule(StepLR(optimizer, 1), name=advised.removesuffix("')")))
    assert {*engine.objects} > {*taken, "optimizer"}


def test_a_scheduler_may_be_among_the_objects_already():
    optimizer = SGD([torch.nn.Parameter(torch.zeros(()))], 0.1)
    scheduler = StepLR(optimizer, 1, 0.5)
    objects = {"optimizer": optimizer, "scheduler": scheduler}
    engine = Engine(lambda state, batch: None, LRSchedule(scheduler), objects=objects)
    assert engine.objects["scheduler"] is scheduler


@pytest.mark.parametrize("allow_stale", [True, False])
def test_a_plateau_does_not_count_a_value_twice_and_an_old_one_is_an_error(allow_stale):
    engine, used, _ = build(
        lambda optimizer: ReduceLROnPlateau(optimizer, factor=0.5, patience=1),
        metric="val/loss",
        allow_stale=allow_stale,
    )

    @engine.on(Events.ITERATION_COMPLETED(where=lambda state: state.epoch % 3 == 1))
    def score(state):
        state.metrics["val/loss"] = 1 / state.epoch

    if allow_stale:
        engine.run([1.0], max_epochs=9)
        assert used == [0.1] * 9
    else:
        with pytest.raises(LookupError, match="'val/loss' was last written in iteration 1"):
            engine.run([1.0], max_epochs=9)


def test_what_is_no_scheduler_is_refused():
    with pytest.raises(TypeError, match="needs a torch scheduler"):
        LRSchedule(torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=0.1))


@pytest.mark.quick(stop_at=1)
@pytest.mark.parametrize(
    "make",
    [
        lambda o, horizon: CosineAnnealingLR(o, horizon.epochs),
        lambda o, horizon: cosine(),
        lambda o, horizon: SequentialLR(o, [LinearLR(o), CosineAnnealingLR(o, 5)], [1]),
        lambda o, horizon: ChainedScheduler([LinearLR(o), StepLR(o, 1)]),
    ],
    ids=["cosine", "pieces", "sequence", "chain"],
)
@pytest.mark.parametrize("stop_at", [1, 2, 3])
def test_torch_has_nothing_to_warn_of_when_an_epoch_ends_before_a_resumed_run_steps(
    make, stop_at, tmp_path
):
    for _ in range(2):
        engine, *_ = build(lambda optimizer: make, when=Events.EPOCH_COMPLETED)
        engine.add(Checkpoint(tmp_path, resume=True))
        engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("pause"))
        engine.run([1.0] * 2, max_epochs=4)


def test_a_schedule_that_was_not_called_is_told_of():
    with pytest.raises(TypeError, match=r"is made by a call, as in LRSchedule\(cosine\(\)\)"):
        cosine(torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))]))
    with pytest.raises(TypeError, match="calls <lambda> with the optimizer, .*too many positional"):
        LRSchedule(lambda: 1.0)
    engine, _, _ = build(lambda optimizer: lambda step: 1.0)
    with pytest.raises(TypeError, match="the function of LRSchedule made 1.0; it needs a torch"):
        engine.run([1.0], max_epochs=1)


def test_a_scheduler_of_an_optimizer_that_the_engine_does_not_know_is_refused():
    own, other = (torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], 0.1) for _ in range(2))
    engine = Engine(lambda state, batch: None, objects={"optimizer": own})
    with pytest.raises(ValueError, match="a StepLR of an optimizer that is not among the engine's"):
        engine.add(LRSchedule(StepLR(other, 1)))


def groups(*options):
    return [{"params": [torch.nn.Parameter(torch.zeros(1))], **each} for each in options]


def script(*schedules, weight_decay=0.1, checkpoint=()):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = AdamW(model.parameters(), 0.1, weight_decay=weight_decay)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(*schedules, *checkpoint)
    rows, used = [], []

    @engine.on(Events.GRADIENTS_READY)
    def look(state):
        group = optimizer.param_groups[0]
        used.append((group["lr"], group["weight_decay"], group["betas"]))

    engine.on(Events.STEP_COMPLETED)(lambda state: rows.append(dict(state.metrics)))
    return engine, optimizer, used, rows


BATCHES = [(torch.ones(1, 2), torch.ones(1, 1))] * 4


def test_each_group_can_have_a_schedule_of_its_own():
    optimizer = SGD(groups({"lr": 0.05}, {"lr": 0.5}))
    scheduler = Scheduled(optimizer, [warmup(100, start=0.2), warmup(100, start=0.4)], None)
    assert scheduler.get_last_lr() == [pytest.approx(0.01), pytest.approx(0.2)]
    for _ in range(100):
        optimizer.step()
        scheduler.step()
    assert scheduler.get_last_lr() == [0.05, 0.5]
    with pytest.raises(ValueError, match="3 schedules and 2 parameter groups"):
        Scheduled(optimizer, [hold()] * 3, None)


def test_any_field_is_moved_beside_the_rate_and_logged_under_its_name():
    engine, _, used, rows = script(
        LRSchedule(linear()),
        LRSchedule(linear(final=2.0), field="weight_decay"),
        LRSchedule(linear(final=0.5), field="betas.0"),
    )
    engine.run(BATCHES, max_epochs=1)
    rates, decays, betas = zip(*used, strict=True)
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert decays == pytest.approx([0.1, 0.125, 0.15, 0.175])
    assert [beta[0] for beta in betas] == pytest.approx([0.9, 0.7875, 0.675, 0.5625])
    assert {beta[1] for beta in betas} == {0.999}
    for place, name in enumerate(("lr", "weight_decay")):
        assert [row[name] for row in rows] == [each[place] for each in used]
    assert [row["betas.0"] for row in rows] == [beta[0] for beta in betas]


@pytest.mark.parametrize("stop_at", [1, 6])
def test_every_field_is_resumed_exactly(stop_at, tmp_path):
    def schedules():
        return (
            LRSchedule(warmup(2).then(linear())),
            LRSchedule(linear(final=2.0), field="weight_decay"),
            LRSchedule(linear(final=0.5), field="betas.0"),
        )

    engine, _, expected, _ = script(*schedules())
    engine.run(BATCHES, max_epochs=2)
    first, _, used, _ = script(*schedules(), checkpoint=[Checkpoint(tmp_path)])
    first.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("pause"))
    first.run(BATCHES, max_epochs=2)
    second, _, more, _ = script(*schedules(), checkpoint=[Checkpoint(tmp_path, resume=True)])
    second.run(BATCHES, max_epochs=2)
    assert used + more == expected


def test_a_changed_start_of_a_field_is_told_and_followed_by_its_schedule_alone(tmp_path):
    def schedules():
        return LRSchedule(linear()), LRSchedule(linear(final=2.0), field="weight_decay")

    first, *_ = script(*schedules(), checkpoint=[Checkpoint(tmp_path)])
    first.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.interrupt("pause"))
    first.run(BATCHES, max_epochs=2)
    second, *_ = script(
        *schedules(), weight_decay=0.2, checkpoint=[Checkpoint(tmp_path, resume=True)]
    )
    said = "  optimizer.weight_decay: 0.1 in the checkpoint -> 0.2 in the script\n"
    with pytest.raises(ValueError, match=said):
        second.run(BATCHES, max_epochs=2)
    accepting = Checkpoint(tmp_path, resume=True, override=["optimizer.weight_decay"])
    third, _, used, _ = script(*schedules(), weight_decay=0.2, checkpoint=[accepting])
    third.run(BATCHES, max_epochs=2)
    whole, _, expected, _ = script(*schedules(), weight_decay=0.2)
    whole.run(BATCHES, max_epochs=2)
    assert used == expected[3:]


def test_a_tensor_rate_is_moved_in_place_to_the_values_of_a_number():
    logged = []
    for rate in (0.5, torch.tensor(0.5)):
        engine, optimizer, _, rows = script(LRSchedule(linear()))
        optimizer.param_groups[0]["lr"] = rate
        engine.run(BATCHES, max_epochs=1)
        logged.append([float(row["lr"]) for row in rows])
    assert logged == [[0.5, 0.375, 0.25, 0.125]] * 2
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.0


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("dropout", "the parameter groups only have 'lr'"),
        ("betas", "choose one, as in 'betas.0'"),
        ("betas.2", "choose one, as in 'betas.0'"),
        ("amsgrad", "needs a field that is a number"),
    ],
)
def test_a_field_that_cannot_be_moved_is_refused(field, message):
    engine, *_ = script(LRSchedule(linear(), field=field))
    with pytest.raises(ValueError, match=message):
        engine.run(BATCHES, max_epochs=1)


def test_a_torch_scheduler_moves_the_rate_alone():
    optimizer = SGD(groups({"lr": 0.1}))
    with pytest.raises(ValueError, match="this StepLR moves 'lr'"):
        LRSchedule(torch.optim.lr_scheduler.StepLR(optimizer, 1), field="momentum")
