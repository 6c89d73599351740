"""Going on with a script that is not what it was: an error that lists it, or an override."""

import copy
import functools
import json
import logging
import math
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)
from torch.utils._pytree import tree_flatten

from camshaft import Engine, Events, supervised
from camshaft.handlers import EarlyStopping, LRSchedule, ProgressBar, Validate, latest
from camshaft.handlers.checkpoint import Checkpoint

DATA = [(torch.full((2, 3), step / 5), torch.ones(2, 1)) for step in range(5)]


def cosine(horizon):
    return lambda optimizer: CosineAnnealingLR(optimizer, horizon)


class Average:
    """An object of a user's own."""

    def __init__(self, value=0.0):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, saved):
        self.value = saved["value"]


class Script:
    """What a training script makes anew whenever it is started."""

    def __init__(self, directory, *handlers, schedule=None, resume=None, override=(), **options):
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1)
        kind, loss = options.pop("optimizer", SGD), options.pop("loss", nn.functional.mse_loss)
        step = {name: options.pop(name) for name in ("precision", "split") if name in options}
        reset, accumulate = options.pop("reset", ()), options.pop("accumulate", 1)
        self.optimizer = kind(self.model.parameters(), **{"lr": 0.1, **options})
        self.engine = supervised(self.model, self.optimizer, loss, accumulate=accumulate, **step)
        self.rates = []
        if schedule is not None:
            self.scheduler = schedule(self.optimizer)
            self.engine.add(LRSchedule(self.scheduler))
        if directory is not None:
            named = {"override": override, "reset": reset}
            handler = Checkpoint(directory, keep=latest(9), resume=resume, **named)
            self.engine.add(handler)
        self.engine.add(*handlers)

        @self.engine.on(Events.GRADIENTS_READY)
        def note(state):
            self.rates.append(self.optimizer.param_groups[0]["lr"])

    def run(self, steps):
        self.state = self.engine.run(DATA, max_steps=steps)
        return self


def resumed(directory, *handlers, **options):
    return Script(directory, *handlers, resume=True, **options)


def everything(script):
    """All that a load could change, as one comparable list."""
    objects = {name: each.state_dict() for name, each in script.engine.objects.items()}
    leaves, shape = tree_flatten(copy.deepcopy(objects))
    return [str(shape), *(x.tolist() if isinstance(x, torch.Tensor) else x for x in leaves)]


def refusal(script):
    """The message of the error, which leaves everything as it was."""
    before = everything(script)
    began = []
    script.engine.on(Events.STARTED)(began.append)
    with pytest.raises(ValueError, match=r"^cannot load .*iteration-\d+: ") as caught:
        script.run(1000)
    assert everything(script) == before
    assert began == []
    return str(caught.value)


def test_loading_is_in_place(tmp_path):
    Script(tmp_path, schedule=cosine(100), momentum=0.9).run(3)
    script = resumed(tmp_path, schedule=cosine(100), momentum=0.9)
    seen = [script.model, script.optimizer, script.scheduler, *script.model.parameters()]
    tensors = [parameter.data_ptr() for parameter in script.model.parameters()]
    script.run(3)
    assert script.state.step == 3
    objects = script.engine.objects
    found = [objects["model"], objects["optimizer"], objects["scheduler"]]
    parameters = script.optimizer.param_groups[0]["params"]
    assert list(map(id, [*found, *parameters])) == list(map(id, seen))
    assert [parameter.data_ptr() for parameter in script.model.parameters()] == tensors
    assert list(map(id, script.model.parameters())) == list(map(id, parameters))
    assert script.scheduler.optimizer is script.optimizer


class Around:
    """An optimizer around another one, whose groups and state it has, too."""

    def __init__(self, inner):
        self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, saved):
        self.inner.load_state_dict(saved)


@pytest.mark.parametrize("around", [lambda optimizer: optimizer, Around])
def test_the_groups_and_the_state_that_a_script_holds_are_those_of_the_resumed_optimizer(
    tmp_path, around
):
    def run(directory, steps):
        script = Script(directory, resume=directory and True, optimizer=Adam)
        held = script.engine.objects["optimizer"] = around(script.optimizer)
        groups, (group,), moments = held.param_groups, held.param_groups, held.state

        @script.engine.on(Events.ITERATION_STARTED)
        def decay(state):
            group["lr"] = 0.1 / state.iteration

        script.run(steps)
        assert script.optimizer.param_groups is groups
        assert script.optimizer.state is moments
        assert list(moments) == list(script.model.parameters())
        return script

    whole = run(None, 5)
    run(tmp_path, 3)
    rest = run(tmp_path, 5)
    assert rest.rates == whole.rates[3:]
    assert torch.equal(rest.model.weight, whole.model.weight)


def test_a_longer_horizon_is_an_error_that_says_what_to_do_and_an_override_goes_on(
    tmp_path, caplog
):
    Script(tmp_path, schedule=cosine(100)).run(45)
    said = refusal(resumed(tmp_path, schedule=cosine(200)))
    assert "\n  scheduler.T_max: 100 in the checkpoint -> 200 in the script\n" in said
    assert "Checkpoint(..., override=['scheduler.T_max'])" in said
    script = resumed(tmp_path, schedule=cosine(200), override=["scheduler.T_max"])
    with caplog.at_level(logging.WARNING, "camshaft"):
        script.run(200)
    assert script.rates == Script(None, schedule=cosine(200)).run(200).rates[45:]
    assert "scheduler.T_max: 100 in the checkpoint -> 200 in the script" in caplog.text


def test_what_was_overridden_is_in_force_from_then_on(tmp_path):
    Script(tmp_path, schedule=cosine(100)).run(45)
    resumed(tmp_path, schedule=cosine(200), override=["scheduler"]).run(60)
    again = resumed(tmp_path, schedule=cosine(200)).run(70)
    assert again.state.step == 70
    script = resumed(tmp_path, schedule=cosine(200), override=["scheduler"])  # the line stays
    script.run(200)
    assert script.rates == Script(None, schedule=cosine(200)).run(200).rates[70:]
    said = refusal(resumed(tmp_path, schedule=cosine(100)))
    assert "scheduler.T_max: 200 in the checkpoint -> 100 in the script" in said


def test_another_rate_is_an_error_and_an_override_replays_the_schedule(tmp_path):
    Script(tmp_path, schedule=cosine(100)).run(45)
    said = refusal(resumed(tmp_path, schedule=cosine(100), lr=0.05))
    assert said.count("->") == 1
    assert "optimizer.lr: 0.1 in the checkpoint -> 0.05 in the script" in said
    script = resumed(tmp_path, schedule=cosine(100), lr=0.05, override=["optimizer.lr"]).run(100)
    assert script.rates == Script(None, schedule=cosine(100), lr=0.05).run(100).rates[45:]
    assert script.optimizer.param_groups[0]["initial_lr"] == 0.05


@pytest.mark.parametrize("new", [0.05, torch.tensor(0.05)], ids=["number", "tensor"])
def test_without_a_schedule_the_scripts_values_are_set_and_the_momentum_goes_on(tmp_path, new):
    first = Script(tmp_path, momentum=0.9).run(7)
    override = ["optimizer.lr", "optimizer.weight_decay"]
    script = resumed(tmp_path, momentum=0.9, lr=new, weight_decay=0.1, override=override)

    @script.engine.on(Events.STARTED)
    def look(state):
        (group,) = script.optimizer.param_groups
        assert (group["lr"], group["weight_decay"], group["momentum"]) == (new, 0.1, 0.9)
        for own, other in zip(group["params"], first.model.parameters(), strict=True):
            momentum = script.optimizer.state[own]["momentum_buffer"]
            assert torch.equal(momentum, first.optimizer.state[other]["momentum_buffer"])

    assert script.run(8).rates == [new]


def test_all_changes_are_listed_at_once(tmp_path):
    early = EarlyStopping("loss", patience=100)
    Script(tmp_path, early, schedule=cosine(100)).run(5)
    script = resumed(tmp_path, schedule=cosine(50), lr=0.2, momentum=0.9)
    script.engine.objects["ema"] = Average()
    said = refusal(script)
    names = [*("'ema'", "'EarlyStopping(loss)'", "'optimizer.lr'", "'optimizer.momentum'")]
    assert f"override=[{', '.join(names)}, 'scheduler.T_max'])" in said
    assert "objects only in the engine: 'ema'" in said


def test_an_override_accepts_what_it_names_and_nothing_else(tmp_path):
    Script(tmp_path, schedule=cosine(100)).run(5)
    options = {"schedule": cosine(50), "lr": 0.2, "momentum": 0.9}
    said = refusal(resumed(tmp_path, override=["optimizer.lr", "scheduler"], **options))
    assert said.count("->") == 1
    assert "override=['optimizer.lr', 'scheduler', 'optimizer.momentum'])" in said
    assert resumed(tmp_path, override=["optimizer", "scheduler"], **options).run(7).state.step == 7


def test_an_override_of_a_name_that_nothing_has_is_an_error_that_lists_what_there_is(tmp_path):
    Script(tmp_path).run(5)
    said = refusal(resumed(tmp_path, override=["optimizer.lr", "optimiser.lr"]))
    assert "override=['optimiser.lr']: unknown names; it can name " in said
    assert "'max_batches', " in said
    assert "'optimizer.lr', 'optimizer.maximize'" in said


def test_where_there_is_no_checkpoint_yet_an_override_waits(tmp_path):
    assert resumed(tmp_path, override=["scheduler"]).run(3).state.step == 3


def test_a_schedule_that_the_new_horizon_ends_before_is_an_error(tmp_path):
    Script(tmp_path, schedule=lambda o: OneCycleLR(o, 1.0, total_steps=60)).run(45)
    script = resumed(
        tmp_path, schedule=lambda o: OneCycleLR(o, 1.0, total_steps=40), override=["scheduler"]
    )
    weight = script.model.weight.clone()
    with pytest.raises(ValueError, match="the changed schedule 'scheduler' cannot resume: Tried"):
        script.run(50)
    assert torch.equal(script.model.weight, weight)


def test_a_schedule_of_another_class_is_replayed(tmp_path):
    Script(tmp_path, schedule=lambda o: ExponentialLR(o, 0.9)).run(8)
    options = {"schedule": lambda o: StepLR(o, 5, 0.5)}
    said = refusal(resumed(tmp_path, **options))
    assert "scheduler.class: 'ExponentialLR' in the checkpoint -> 'StepLR' in the script" in said
    script = resumed(tmp_path, override=["scheduler"], **options).run(20)
    assert script.rates == Script(None, **options).run(20).rates[8:]


def test_the_peak_of_a_cycle_is_a_setting_of_the_optimizer(tmp_path):
    Script(tmp_path, schedule=lambda o: OneCycleLR(o, 1.0, total_steps=60)).run(45)
    options = {"schedule": lambda o: OneCycleLR(o, 2.0, total_steps=60)}
    said = refusal(resumed(tmp_path, **options))
    assert "override=['optimizer.lr', 'optimizer.max_lr', 'optimizer.min_lr'])" in said
    script = resumed(tmp_path, override=["optimizer"], **options).run(60)
    assert script.rates == Script(None, **options).run(60).rates[45:]


def test_a_plateau_takes_other_settings_and_keeps_its_progress(tmp_path):
    def plateau(script, patience):
        script.scheduler = ReduceLROnPlateau(script.optimizer, patience=patience)
        when = Events.ITERATION_COMPLETED
        script.engine.on(when)(lambda state: state.metrics.update(score=1.0))
        script.engine.add(LRSchedule(script.scheduler, when=when, metric="score"))
        return script

    first = plateau(Script(tmp_path), 100).run(8)
    assert first.scheduler.num_bad_epochs == 7
    said = refusal(plateau(resumed(tmp_path), 9))
    assert "scheduler.patience: 100 in the checkpoint -> 9 in the script" in said
    script = plateau(resumed(tmp_path, override=["scheduler.patience"]), 9).run(13)
    assert script.rates == pytest.approx([0.1, 0.1, 0.1, 0.01, 0.01])


def test_a_schedule_can_come_and_go(tmp_path):
    Script(tmp_path).run(5)
    options = {"schedule": lambda o: ExponentialLR(o, 0.5)}
    assert "objects only in the engine: 'scheduler'" in refusal(resumed(tmp_path, **options))
    assert resumed(tmp_path, override=["scheduler"], **options).run(7).rates == [0.1, 0.05]
    assert "objects only in the checkpoint: 'scheduler'" in refusal(resumed(tmp_path))
    assert resumed(tmp_path, override=["scheduler"]).run(9).rates == [0.025, 0.025]


def test_an_optimizer_of_another_class_is_told_of_by_its_class(tmp_path):
    Script(tmp_path, optimizer=Adam).run(3)
    said = refusal(resumed(tmp_path, optimizer=torch.optim.AdamW))
    assert "optimizer.class: 'Adam' in the checkpoint -> 'AdamW' in the script" in said


def test_objects_that_only_one_side_has_are_left_alone_if_that_is_said(tmp_path, caplog):
    script = Script(tmp_path)
    script.engine.objects["ema"] = Average(3.0)
    script.run(5)
    script = resumed(tmp_path)
    script.engine.objects["mean"] = mean = Average(7.0)
    said = refusal(script)
    assert "objects only in the engine: 'mean'" in said
    assert "objects only in the checkpoint: 'ema'" in said
    assert "override=['ema', 'mean']" in said
    script = resumed(tmp_path, override=["ema", "mean"])
    script.engine.objects["mean"] = mean
    with caplog.at_level(logging.WARNING, "camshaft"):
        assert script.run(7).state.step == 7
    assert mean.value == 7.0
    assert "ema: not in the script, left out" in caplog.text
    assert "mean: not in the checkpoint, stays as the script made it" in caplog.text


def test_an_object_that_refuses_leaves_the_model_as_it_was(tmp_path):
    class Stubborn(Average):
        def load_state_dict(self, saved):
            raise RuntimeError("no")

    script = Script(tmp_path)
    script.engine.objects["a"] = Average()
    script.run(5)
    script = resumed(tmp_path)
    script.engine.objects["a"] = Stubborn()
    weight = script.model.weight.clone()
    with pytest.raises(RuntimeError, match="no"):
        script.run(9)
    assert torch.equal(script.model.weight, weight)


def test_what_an_object_says_of_its_state_is_escaped(tmp_path):
    class Particular(Average):
        def load_state_dict(self, saved):
            raise ValueError(f"no average:\n{saved['value']}")

    script = Script(tmp_path)
    script.engine.objects["a"] = Average("\x1b[2J")
    script.run(5)
    script = resumed(tmp_path)
    script.engine.objects["a"] = Particular()
    with pytest.raises(ValueError, match=r"no average:\n\\x1b\[2J\n"):
        script.run(9)


def scoring(directory, scores, *monitors, stop_at=None, **options):
    """An engine with two scores an epoch, one that improves and one that does not."""
    engine = Engine(lambda state, batch: None)

    @engine.on(Events.EPOCH_COMPLETED)
    def score(state):
        state.metrics.update(better=-float(state.epoch), worse=scores[state.epoch - 1])
        if state.epoch == stop_at:
            state.stop("pause", resumable=True)

    engine.add(*(EarlyStopping(metric) for metric in monitors))
    return engine.add(Checkpoint(directory, **options))


SCORES = [0.5, *(0.6 for _ in range(20))]


def test_patience_goes_on_and_a_renamed_handler_is_told_of_with_both_names(tmp_path):
    monitors = ("better", "worse")
    scoring(tmp_path, SCORES, *monitors, stop_at=3).run("ab", max_epochs=9)  # two bad looks
    engine = scoring(tmp_path, SCORES, "better", "score", resume=True)
    with pytest.raises(ValueError, match="it does not fit this script") as caught:
        engine.run("ab", max_epochs=9)
    assert "handlers only in the script: 'EarlyStopping(score)'" in str(caught.value)
    assert "handlers only in the checkpoint: 'EarlyStopping(worse)'" in str(caught.value)
    assert "override=['EarlyStopping(worse)']" in str(caught.value)
    state = scoring(tmp_path, SCORES, *monitors, resume=True).run("ab", max_epochs=9)
    assert state.epoch == 4
    assert "worse has not improved on 0.5 in 3 looks" in str(state.stop_reason)


def test_a_handler_that_is_reset_begins_anew_once(tmp_path, caplog):
    scoring(tmp_path, SCORES, "worse", stop_at=3).run("ab", max_epochs=9)
    again = {"resume": True, "reset": ["EarlyStopping(worse)"]}
    with caplog.at_level(logging.WARNING, "camshaft"):
        scoring(tmp_path, SCORES, "worse", stop_at=5, **again).run("ab", max_epochs=9)
    assert "reset, begins anew:\n  EarlyStopping(worse)" in caplog.text
    caplog.clear()
    # From its best of 0.6 in the fourth epoch, it has waited once; the line stays in the script.
    state = scoring(tmp_path, SCORES, "worse", **again).run("ab", max_epochs=20)
    assert state.epoch == 7
    assert "anew" not in caplog.text


def test_an_override_of_a_handler_that_goes_on_says_that_reset_is_meant(tmp_path):
    scoring(tmp_path, SCORES, "worse", stop_at=3).run("ab", max_epochs=9)
    engine = scoring(tmp_path, SCORES, "worse", resume=True, override=["EarlyStopping(worse)"])
    with pytest.raises(ValueError, match=r"write reset=\['EarlyStopping\(worse\)'\]"):
        engine.run("ab", max_epochs=9)


def test_an_override_of_a_renamed_handler_stays_in_the_script_for_ever(tmp_path, caplog):
    def start(metric, stop_at, *names, **options):
        again = {"override": names, "resume": True, "stop_at": stop_at} | options
        return scoring(tmp_path, SCORES, metric, **again).run("ab", max_epochs=20)

    start("worse", 3)
    names = ("EarlyStopping(worse)", "EarlyStopping(better)")
    start("better", 5, *names)
    caplog.clear()
    for stop_at in (7, 8):
        assert start("better", stop_at, *names).epoch == stop_at
    assert "override" not in caplog.text


def test_words_that_a_run_began_with_change_nothing_when_it_resumes(tmp_path, caplog):
    """A script that is moved to a new directory keeps its lines."""
    options = {"schedule": cosine(100), "momentum": 0.9}
    whole = Script(None, **options).run(9)
    words = {"reset": ["optimizer", "scheduler"], "override": ["optimizer.lr"]}
    for steps in (3, 6, 9):
        script = resumed(tmp_path, **words, **options).run(steps)
    assert everything(script) == everything(whole)
    assert "anew" not in caplog.text


def test_an_optimizer_that_is_reset_has_no_momentum_and_the_schedule_goes_on(tmp_path, caplog):
    options = {"schedule": cosine(100), "momentum": 0.9}
    Script(tmp_path, **options).run(45)
    script = resumed(tmp_path, reset=["optimizer"], **options)
    seen = []
    script.engine.on(Events.STARTED)(lambda state: seen.append(len(script.optimizer.state)))
    with caplog.at_level(logging.WARNING, "camshaft"):
        script.run(60)
    assert seen == [0]
    assert script.rates == Script(None, **options).run(60).rates[45:]
    assert "reset, begins anew:\n  optimizer" in caplog.text
    again = resumed(tmp_path, reset=["optimizer"], **options)  # the line stays
    again.engine.on(Events.STARTED)(lambda state: seen.append(len(again.optimizer.state)))
    assert again.run(100).rates == Script(None, **options).run(100).rates[60:]
    assert seen == [0, 2]


@pytest.mark.quick(schedule=1)
@pytest.mark.parametrize(
    "schedule",
    [cosine(100), lambda o: ExponentialLR(o, 0.9), lambda o: StepLR(o, 3, 0.5)],
    ids=["cosine", "exponential", "step"],
)
def test_a_schedule_that_is_reset_begins_at_its_beginning_and_the_momentum_goes_on(
    tmp_path, schedule
):
    options = {"schedule": schedule, "momentum": 0.9}
    Script(tmp_path, **options).run(45)
    script = resumed(tmp_path, reset=["scheduler"], **options)
    seen = []
    script.engine.on(Events.STARTED)(lambda state: seen.append(len(script.optimizer.state)))
    assert script.run(60).rates == Script(None, **options).run(15).rates
    assert seen == [2]
    again = resumed(tmp_path, reset=["scheduler"], **options).run(70)
    assert again.rates == Script(None, **options).run(25).rates[15:]


def test_a_plateau_that_is_reset_has_the_rate_of_the_script(tmp_path):
    def script(**options):
        made = Script(tmp_path, **options)
        made.scheduler = ReduceLROnPlateau(made.optimizer, patience=2)
        each = Events.ITERATION_COMPLETED
        made.engine.on(each)(lambda state: state.metrics.update(score=1.0))
        made.engine.add(LRSchedule(made.scheduler, when=each, metric="score"))
        return made

    assert script().run(5).rates[-1] == pytest.approx(0.01)
    assert script(resume=True, reset=["scheduler"]).run(7).rates == [0.1, 0.1]


def test_an_optimizer_into_which_the_saved_one_does_not_fit_can_only_begin_anew(tmp_path):
    Script(tmp_path, optimizer=Adam).run(3)
    for override in ([], ["optimizer.class", "optimizer.lr"]):
        said = refusal(resumed(tmp_path, lr=0.2, override=override))
        assert said.endswith("back, or let these begin anew: Checkpoint(..., reset=['optimizer'])")
    assert resumed(tmp_path, lr=0.2, reset=["optimizer"]).run(6).state.step == 6


def test_an_optimizer_of_another_class_or_with_other_groups_can_begin_anew(tmp_path):
    Script(tmp_path, optimizer=SGD, momentum=0.9).run(3)
    script = resumed(tmp_path, optimizer=Adam, lr=0.01, reset=["optimizer"]).run(5)
    assert script.rates == [0.01, 0.01]
    assert resumed(tmp_path, optimizer=Adam, lr=0.01).run(7).state.step == 7


def test_an_optimizer_with_other_groups_needs_its_schedule_to_begin_anew_too(tmp_path):
    def script(**options):
        made = Script(None)
        made.optimizer = made.engine.objects["optimizer"]
        if options:
            weight, bias = made.model.parameters()
            made.optimizer.param_groups[0]["params"] = [weight]
            made.optimizer.add_param_group({"params": [bias], "lr": 0.2})
        made.scheduler = StepLR(made.optimizer, 3)
        made.engine.add(LRSchedule(made.scheduler), Checkpoint(tmp_path, **options))
        return made

    script().run(5)
    said = refusal(script(resume=True, reset=["optimizer"]))
    assert "'optimizer' begins anew with 2 groups, and its schedule 'scheduler' is of 1" in said
    both = script(resume=True, reset=["optimizer", "scheduler"]).run(6)
    assert both.rates == [0.1]


def test_another_rate_of_an_optimizer_that_begins_anew_under_a_schedule_that_goes_on_is_told(
    tmp_path,
):
    Script(tmp_path, schedule=cosine(100)).run(45)
    options = {"schedule": cosine(100), "lr": 0.05, "reset": ["optimizer"]}
    assert "optimizer.lr: 0.1 in the checkpoint -> 0.05" in refusal(resumed(tmp_path, **options))
    script = resumed(tmp_path, override=["optimizer.lr"], **options).run(50)
    assert script.rates == Script(None, schedule=cosine(100), lr=0.05).run(50).rates[45:]
    both = options | {"reset": ["optimizer", "scheduler"]}
    script = resumed(tmp_path, **both).run(60)
    assert script.rates == Script(None, schedule=cosine(100), lr=0.05).run(10).rates


def test_a_reset_of_a_setting_or_of_nothing_is_an_error_that_says_what_there_is(tmp_path):
    Script(tmp_path).run(5)
    said = refusal(resumed(tmp_path, reset=["optimizer.lr"]))
    assert "reset=['optimizer.lr']: needs names of objects or handlers" in said
    assert "to accept a changed setting, use override=" in said
    with pytest.raises(TypeError, match=r"reset='optimizer': needs a list of names"):
        Checkpoint(tmp_path, reset="optimizer")


def test_another_loss_function_and_another_accumulation_are_told_of_and_no_error(tmp_path, caplog):
    Script(tmp_path).run(5)
    options = {"loss": nn.functional.l1_loss, "accumulate": 2}
    with caplog.at_level(logging.WARNING, "camshaft"):
        resumed(tmp_path, **options).run(7)
    (record,) = caplog.records
    assert "the script trains in another way than the saved run" in record.getMessage()
    said = [line.strip() for line in record.getMessage().split("\n")[1:]]
    assert said == [
        "Update.accumulate: 1 in the checkpoint -> 2 in the script",
        "supervised.loss_fn: 'mse_loss' in the checkpoint -> 'l1_loss' in the script",
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "camshaft"):
        resumed(tmp_path, **options).run(8)
        resumed(tmp_path, loss=nn.L1Loss(), accumulate=2, override=["supervised.loss_fn"]).run(9)
    assert "another way" not in caplog.text
    assert "supervised.loss_fn: 'l1_loss' in the checkpoint -> 'L1Loss'" in caplog.text


def test_another_precision_and_batches_in_parts_are_told_of(tmp_path, caplog):
    Script(tmp_path).run(5)
    with caplog.at_level(logging.WARNING, "camshaft"):
        resumed(tmp_path, precision="bf16", split=1).run(7)
    (record,) = caplog.records
    assert [line.strip() for line in record.getMessage().split("\n")[1:]] == [
        "supervised.precision: None in the checkpoint -> 'torch.bfloat16' in the script",
        "supervised.split: None in the checkpoint -> 1 in the script",
    ]


def test_other_options_of_layers_and_of_the_loss_function_are_told_of(tmp_path, caplog):
    def run(epochs, rate, **options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(rate), nn.Linear(8, 2))
        loss_fn = nn.CrossEntropyLoss(**options)
        engine = supervised(model, SGD(model.parameters(), 0.1), loss_fn)
        engine.add(Checkpoint(tmp_path, resume=True))
        engine.run([(torch.ones(2, 3), torch.tensor([0, 1]))], max_epochs=epochs)
        said = [each.getMessage() for each in caplog.records if each.name == "camshaft"]
        caplog.clear()
        return [line.strip() for each in said for line in each.split("\n")[1:]]

    told = functools.partial(run, weight=torch.tensor([1.0, 2.0]), label_smoothing=0.1)
    assert not run(1, 0.1)
    assert told(2, 0.2) == [
        "model.layers: {'Dropout(p=0.1, inplace=False)': 1} in the checkpoint -> "
        "{'Dropout(p=0.2, inplace=False)': 1} in the script",
        "supervised.loss_fn.label_smoothing: 0.0 in the checkpoint -> 0.1 in the script",
        "supervised.loss_fn.weight: None in the checkpoint -> tensor([1., 2.]) in the script",
    ]
    assert not told(3, 0.2)


def test_another_number_of_threads_is_told_of_since_sums_round_in_another_way(tmp_path, caplog):
    Script(tmp_path).run(5)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with caplog.at_level(logging.WARNING, "camshaft"):
            resumed(tmp_path).run(7)
            resumed(tmp_path).run(8)  # told once
    finally:
        torch.set_num_threads(before)
    (record,) = caplog.records
    assert "so the last bits may differ" in record.getMessage()
    assert record.getMessage().split("\n")[1:] == [
        f"  process.torch.get_num_threads(): '{before}' in the checkpoint -> '{before + 1}' here"
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "camshaft"):
        resumed(tmp_path, override=["process"]).run(9)
    assert "override, accepted as the script has it" in caplog.text


@pytest.mark.parametrize(("name", "value"), [("torch", "2.9.0"), ("processor", "x86_64 with AVX2")])
def test_another_torch_and_another_processor_are_told_of(tmp_path, caplog, name, value):
    script = Script(tmp_path)

    @script.engine.on(Events.STARTED)
    def elsewhere(state):  # where this checkpoint is written
        state.control.settings[f"process.{name}"] = value

    script.run(5)
    with caplog.at_level(logging.WARNING, "camshaft"):
        resumed(tmp_path).run(7)
    assert f"process.{name}: '{value}' in the checkpoint ->" in caplog.text


def test_a_handler_that_is_gone_can_be_left_out_and_stays_out(tmp_path):
    scoring(tmp_path, SCORES, "worse", stop_at=3).run("ab", max_epochs=9)
    gone = {"resume": True, "override": ["EarlyStopping(worse)"]}
    state = scoring(tmp_path, SCORES, stop_at=5, **gone).run("ab", max_epochs=9)
    assert "EarlyStopping(worse)" not in state.memory.loaded
    assert scoring(tmp_path, SCORES, **gone).run("ab", max_epochs=7).epoch == 7  # the line stays
    assert scoring(tmp_path, SCORES, resume=True).run("ab", max_epochs=9).epoch == 9


def test_a_function_whose_trigger_remembers_is_missed_too(tmp_path):
    def engine(resume=None, *functions):
        made = Engine(lambda state, batch: None, Checkpoint(tmp_path, resume=resume))
        for function in functions:
            made.on(Events.ITERATION_COMPLETED(seconds=1000))(function)
        return made

    def report(state):
        return None

    def tell(state):
        return None

    engine(None, report).run("abcd", max_epochs=1)
    with pytest.raises(ValueError, match="only in the checkpoint: 'report'") as caught:
        engine(True, tell).run("abcd", max_epochs=2)
    assert "handlers only in the script: 'tell'" in str(caught.value)
    assert engine(True, report, tell).run("abcd", max_epochs=2).epoch == 2


def test_handlers_that_are_new_or_remembered_nothing_are_no_error_and_the_new_are_told_of(
    tmp_path, caplog
):
    Script(tmp_path, ProgressBar()).run(5)
    script = resumed(tmp_path, EarlyStopping("loss"), Validate(DATA))
    with caplog.at_level(logging.INFO, "camshaft"):
        assert script.run(10).state.step == 10
    new = "handlers without a memory in the checkpoint: EarlyStopping(loss), Validate(val)"
    assert new in caplog.messages
    assert not math.isnan(script.state.metrics["val/loss"])


class Diary:
    """A handler whose memory the test makes."""

    def __init__(self, make):
        self.make = make

    def attach(self, engine):
        engine.on(Events.EPOCH_COMPLETED)(self.note)

    def note(self, state):
        state.recall(self, lambda: self.make(state))


@dataclass
class Seen:
    losses: list = field(default_factory=list)


@dataclass
class Looked:
    scores: list = field(default_factory=list)


def test_what_a_handler_remembers_with_other_fields_is_an_error_by_name(tmp_path):
    Script(tmp_path, Diary(lambda state: Seen())).run(5)
    with pytest.raises(ValueError, match="what Diary remembered does not fit") as caught:
        resumed(tmp_path, Diary(lambda state: Looked())).run(10)
    assert "only in the checkpoint: 'losses'; fields only in Looked: 'scores'" in str(caught.value)
    script = resumed(tmp_path, Diary(lambda state: Looked()), reset=["Diary"]).run(10)
    assert script.state.memory.saved["Diary"] == Looked()


RANKS = """
import json
import os
import sys
import ignite.distributed as idist
import torch
from torch import nn
from camshaft import Engine, Events
from camshaft import on_rank
from camshaft.handlers import EarlyStopping, JSONLines
from camshaft.handlers.checkpoint import Checkpoint

directory, epochs, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
idist.initialize("gloo")
rate = options.get("lr", [0.1, 0.1])[idist.get_rank()]
optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), rate)
engine = Engine(lambda state, batch: None, objects={"optimizer": optimizer})
if options.get("rows", True):
    engine.add(JSONLines(directory + "/rows.jsonl"))
override = options.get("override", [])
engine.add(Checkpoint(directory, resume=True, override=override))
engine.on(Events.EPOCH_COMPLETED)(lambda state: state.metrics.update(score=1.0 * state.epoch))
said, epoch = None, None
try:
    epoch = engine.run([1, 2], max_epochs=epochs).epoch
except Exception as error:
    said = f"{type(error).__name__}: {error}"
print(json.dumps({"said": said, "epoch": epoch, "lr": optimizer.param_groups[0]["lr"]}), flush=True)
idist.barrier()
os._exit(0)  # gloo's threads sometimes abort a process that ends in the usual way
"""


@pytest.fixture
def on_ranks(processes):
    """Runs so many epochs on so many ranks; what each of them says of it."""

    def run(directory, epochs, count=2, **options):
        directory.mkdir(exist_ok=True)
        results = processes.run_ranks(count, RANKS, directory, epochs, json.dumps(options))
        return [json.loads(each.stdout) for each in results]

    return run


@pytest.mark.slow
def test_on_two_ranks_errors_are_shared_and_what_one_rank_alone_remembers_is_no_misfit(
    on_ranks, tmp_path
):
    directory = tmp_path / "run"
    assert [each["epoch"] for each in on_ranks(directory, 1)] == [1, 1]
    for each in on_ranks(directory, 3, lr=[0.1, 0.2]):
        assert "rank 1 has optimizer.lr=0.2 where the other has 0.1" in each["said"]
    first, second = on_ranks(directory, 3, rows=False)
    assert "handlers only in the checkpoint: 'JSONLines'" in first["said"]
    assert second["said"].startswith("AnotherRankError: another rank could not load")
    options = {"rows": False, "override": ["JSONLines", "optimizer.lr"], "lr": [0.2, 0.2]}
    for each in on_ranks(directory, 3, **options):
        assert each == {"said": None, "epoch": 3, "lr": 0.2}


@pytest.mark.slow
def test_on_more_ranks_than_wrote_it_only_the_first_one_misses_its_handlers(on_ranks, tmp_path):
    directory = tmp_path / "run"
    assert on_ranks(directory, 1, count=1)[0]["epoch"] == 1
    assert [each["epoch"] for each in on_ranks(directory, 2)] == [2, 2]
    assert on_ranks(directory, 3, count=1)[0]["epoch"] == 3
