"""What `from_lightning` takes of a LightningModule, and what it refuses by name."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader
from torchmetrics import SumMetric

from camshaft import Events
from camshaft.handlers import EMA, Checkpoint, ClipGradNorm, ClipGradValue, NonFiniteGuard, Validate
from camshaft.handlers.bridges.lightning import NOT_TAKEN, TAKEN, LightningEvents, from_lightning

lightning = pytest.importorskip("lightning.pytorch")
from lightning.pytorch.utilities.exceptions import MisconfigurationException  # noqa: E402

BATCHES = [torch.ones(4, 2), torch.full((4, 2), 2.0), torch.full((2, 2), 3.0)]


class Small(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)

    def loss(self, batch):
        return self.layer(batch).pow(2).mean()

    def training_step(self, batch, batch_idx):
        return self.loss(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def run(module, **options):
    return from_lightning(module).run(BATCHES, max_epochs=1, **options)


# Hooks

CLIPPING = ("gradient_clip_val", "gradient_clip_algorithm")
NOTED = [
    *("prepare_data", "setup", "configure_model", "configure_optimizers", "on_fit_start"),
    *("on_train_start", "on_train_epoch_start", "on_train_batch_start", "training_step"),
    *("on_before_backward", "on_after_backward", "on_before_optimizer_step"),
    *("configure_gradient_clipping", "on_train_batch_end", "on_validation_start"),
    *("on_validation_epoch_start", "on_validation_batch_start", "validation_step"),
    *("on_validation_batch_end", "on_validation_epoch_end", "on_validation_end"),
    *("on_train_epoch_end", "on_train_end", "on_fit_end", "teardown"),
]


def define(names):
    """A module that defines these hooks, each of which notes that it was called."""

    def noting(name):
        arguments = {
            **dict.fromkeys(("on_before_backward", "on_before_optimizer_step"), 1),
            **dict.fromkeys(("on_train_batch_start", "on_validation_batch_start"), 2),
            **dict.fromkeys(("on_train_batch_end", "on_validation_batch_end"), 3),
            "configure_gradient_clipping": 1,
        }

        def hook(self, *given, **named):
            assert len(given) == arguments.get(name, 0)
            assert named in ({}, {"stage": "fit"}, dict.fromkeys(CLIPPING))
            self.lines.append(name)

        return hook

    def training_step(self, batch, batch_idx):
        self.lines.append("training_step")
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        self.lines.append("validation_step")

    own = {"training_step": training_step, "validation_step": validation_step}
    hooks = {name: noting(name) for name in names if name not in own}
    hooks.pop("configure_optimizers")
    made = type("Noting", (Small,), {**hooks, **own})()
    made.lines = []
    return made


@pytest.mark.filterwarnings("ignore")  # Lightning's own, of torch and of how small the run is
def test_the_hooks_of_a_module_are_called_in_lightnings_order():
    module, other = define(NOTED), define(NOTED)
    from_lightning(module).add(Validate(BATCHES[:1])).run(BATCHES[:2], max_epochs=2)
    trainer = lightning.Trainer(
        **dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False),
        **{"enable_checkpointing": False, "max_epochs": 2, "accelerator": "cpu"},
        num_sanity_val_steps=0,
    )
    training, validation = (DataLoader(BATCHES[:n], batch_size=None) for n in (2, 1))
    trainer.fit(other, training, validation)
    assert module.lines == other.lines
    assert set(other.lines) == set(NOTED) - {"configure_optimizers"}


def test_each_hook_of_lightning_is_either_called_or_named_in_an_error():
    from lightning.pytorch.core import hooks

    bases = (hooks.ModelHooks, hooks.DataHooks, hooks.CheckpointHooks)
    known = {name for base in bases for name in vars(base) if not name.startswith("_")}
    own = vars(lightning.LightningModule).keys() - {"global_step"}
    called = {name for name in own if name.endswith(("_step", "_end", "_start"))}
    known |= called | {name for name in own if name.startswith("configure_")} | {"backward"}
    assert known - TAKEN - NOT_TAKEN.keys() == set()


@pytest.mark.parametrize("name", sorted(NOT_TAKEN))
def test_a_hook_that_is_not_called_is_an_error_before_the_first_batch(name):
    cls = type("Other", (Small,), {name: lambda self, *given: None})
    with pytest.raises(ValueError, match=rf"Other\.{name} is not called by this engine: \S+"):
        from_lightning(cls())


def test_minus_one_ends_the_epoch():
    class Short(Small):
        def on_train_batch_start(self, batch, batch_idx):
            return -1 if batch_idx == 1 else None

    state = from_lightning(Short()).run(BATCHES, max_epochs=2)
    assert (state.epoch, state.step) == (2, 2)


@pytest.mark.slow
def test_a_hook_may_freeze_layers_and_a_resumed_epoch_keeps_them_frozen(tmp_path):
    class Frozen(Small):
        def on_train_epoch_start(self):
            self.layer.bias.requires_grad = False

    def attempt(limit):
        module = Frozen()
        every = Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED, resume=True)
        from_lightning(module).add(every).run(BATCHES, max_iterations=limit)
        return module.layer.bias

    before = attempt(1).detach().clone()
    after = attempt(3)
    assert not after.requires_grad
    assert torch.equal(before, after)


# The trainer


def test_what_a_module_reads_of_its_trainer():
    class Reader(Small):
        def __init__(self):
            super().__init__()
            self.lines = []

        def training_step(self, batch, batch_idx):
            trainer = self.trainer
            self.lines.append((self.current_epoch, self.global_step, trainer.is_last_batch))
            assert (trainer.max_epochs, trainer.num_training_batches) == (2, 3)
            assert trainer.is_global_zero
            assert trainer.training
            assert (self.logger, list(self.loggers), self.global_rank) == (None, [], 0)
            return self.loss(batch)

    module = Reader()
    from_lightning(module).run(BATCHES, max_epochs=2)
    assert module.lines == [(n // 3, n, n % 3 == 2) for n in range(6)]


def test_the_trainers_stage_is_lightnings_and_what_takes_arguments_is_no_dropped_hook():
    from lightning.pytorch.trainer.states import RunningStage

    class Staged(Small):
        def training_step(self, batch, batch_idx):
            self.stage = self.trainer.state.stage
            return self.loss(batch)

        def validation_step(self, batch, batch_idx):
            stages = {RunningStage.VALIDATING: "val", RunningStage.TESTING: "test"}
            self.found = stages[self.trainer.state.stage]

        test_step = validation_step

        def on_train_epoch_end(self):
            self.on_epoch_end([1, 2])

        def on_epoch_end(self, outputs):
            self.outputs = outputs

    module = Staged()
    engine = from_lightning(module).add(Validate(BATCHES))
    engine.run(BATCHES, max_epochs=1)
    assert (module.stage, module.found) == (RunningStage.TRAINING, "val")
    assert module.outputs == [1, 2]
    engine.evaluate(BATCHES, name="test")
    assert module.found == "test"


def test_what_the_trainer_would_know_before_the_run_is_given_or_an_error():
    class OneCycle(Small):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            steps = self.trainer.estimated_stepping_batches
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, steps)
            return [optimizer], [{"scheduler": self.scheduler, "interval": "step"}]

    with pytest.raises(
        AttributeError, match=r"trainer\.estimated_stepping_batches .* trainer={'est"
    ):
        from_lightning(OneCycle())
    module = OneCycle()
    from_lightning(module, trainer={"estimated_stepping_batches": 3}).run(BATCHES, max_epochs=1)
    assert module.scheduler.last_epoch == 3


# Steps


def test_a_step_may_be_skipped_and_wrong_results_are_errors():
    class Picky(Small):
        def training_step(self, batch):
            return None if len(batch) == 2 else self.loss(batch)

    assert run(Picky()).step == 2
    for result, kind in ((1, 2), "tuple"), ({"prediction": 1}, "dict"):
        step = {"training_step": lambda self, batch: self.made, "made": result}
        wrong = type("Wrong", (Small,), step)
        with pytest.raises(TypeError, match=rf"returned a {kind}; it needs the loss, a dictionary"):
            run(wrong())


@pytest.mark.parametrize("name", ["optimizer_idx", "dataloader_idx"])
def test_old_signatures_are_named(name):
    step = {}
    exec(f"def training_step(self, batch, batch_idx, {name}): pass", step)
    with pytest.raises(ValueError, match=rf"training_step\({name}\) is not taken"):
        from_lightning(type("Old", (Small,), step)())


def test_a_short_window_is_exact():
    """Lightning divides by the full window, so that its last step is too short."""
    module, other = Small(), Small()
    from_lightning(module, accumulate=2).run(BATCHES, max_epochs=1)
    optimizer = other.configure_optimizers()
    for window in (BATCHES[:2], BATCHES[2:]):
        optimizer.zero_grad()
        sum(other.loss(batch) / len(window) for batch in window).backward()
        optimizer.step()
    assert torch.equal(module.layer.weight, other.layer.weight)


@pytest.mark.parametrize(
    ("algorithm", "most", "handlers"),
    [
        ("norm", 0.5, [ClipGradNorm(0.5)]),
        ("value", 0.1, [ClipGradValue(0.1)]),
        ("norm", 0, []),
    ],
)
def test_the_module_clips_gradients_itself_where_it_says_how(algorithm, most, handlers):
    class Clipping(Small):
        def configure_gradient_clipping(
            self, optimizer, gradient_clip_val, gradient_clip_algorithm
        ):
            self.clip_gradients(optimizer, most, algorithm)

    module, other = Clipping(), Small()
    run(module)
    from_lightning(other).add(*handlers).run(BATCHES, max_epochs=1)
    assert torch.equal(module.layer.weight, other.layer.weight)


def test_bfloat16_and_the_closure_of_lbfgs():
    class Newton(Small):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), max_iter=3)

        def training_step(self, batch, batch_idx):
            self.kind = self.layer(batch).dtype
            return self.loss(batch)

    module = Newton()
    state = from_lightning(module, precision="bf16").run(BATCHES, max_epochs=3)
    assert module.kind == torch.bfloat16
    assert state.step == 9
    Newton.on_after_backward = lambda self: None
    with pytest.raises(ValueError, match=r"Newton\.on_after_backward is not called .* LBFGS"):
        from_lightning(Newton())
    with pytest.raises(ValueError, match=r"precision='16-mixed': needs one of fp32, bf16, fp16"):
        from_lightning(Small(), precision="16-mixed")


# Optimizers and schedules


def forms(optimizer, scheduler):
    return {
        "optimizer": (optimizer, 0),
        "list": ([optimizer], 0),
        "lists": (([optimizer], [scheduler]), 1),
        "lists of dictionaries": (([optimizer], [{"scheduler": scheduler}]), 1),
        "dictionary": ({"optimizer": optimizer}, 0),
        "with scheduler": ({"optimizer": optimizer, "lr_scheduler": scheduler}, 1),
        "nested": ({"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler}}, 1),
        "dictionaries": ([{"optimizer": optimizer, "lr_scheduler": scheduler}], 1),
        "no schedulers": (([optimizer], []), 0),
    }


@pytest.mark.parametrize("form", forms(None, None))
def test_each_form_of_configure_optimizers(form):
    class Formed(Small):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            returned, self.schedulers = forms(optimizer, StepLR(optimizer, 1))[form]
            return returned

    engine = from_lightning(module := Formed())
    engine.run(BATCHES, max_epochs=2)
    rate = engine.objects["optimizer"].param_groups[0]["lr"]
    assert rate == pytest.approx(0.1 * 0.1 ** (2 * module.schedulers))
    assert ("scheduler" in engine.objects) == bool(module.schedulers)


def returning(make):
    """A module whose configure_optimizers returns what `make` makes of its optimizer."""
    return type(
        "Returning",
        (Small,),
        {"configure_optimizers": lambda self: make(Small.configure_optimizers(self))},
    )()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda optimizer: None, r"returned None; it needs an optimizer"),
        (lambda optimizer: [optimizer, optimizer], r"gives 2 optimizers, and automatic"),
        (
            lambda optimizer: {
                "optimizer": optimizer,
                "lr_scheduler": ReduceLROnPlateau(optimizer),
            },
            r"ReduceLROnPlateau needs a metric to look at",
        ),
        (
            lambda optimizer: (
                [optimizer],
                [{"scheduler": StepLR(optimizer, 1), "interval": "day"}],
            ),
            r"StepLR has interval='day'",
        ),
        (
            lambda optimizer: ([optimizer], {"scheduler": StepLR(optimizer, 1), "often": 2}),
            r"has no key \['often'\]; its keys are frequency",
        ),
        (
            lambda optimizer: ([optimizer], [StepLR(Small().configure_optimizers(), 1)]),
            r"StepLR moves the rates of an optimizer that is not returned",
        ),
    ],
)
def test_optimizers_and_schedulers_that_do_not_fit_are_errors(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        from_lightning(returning(make))


def test_a_frequency_counts_batches_of_the_epoch_as_lightning_does():
    def make(optimizer):
        schedule = {"scheduler": StepLR(optimizer, 1), "interval": "step", "frequency": 2}
        return [optimizer], [schedule]

    engine = from_lightning(returning(make))
    engine.run(BATCHES, max_epochs=2)
    assert engine.objects["scheduler"].last_epoch == 2


def test_a_frequency_above_the_batches_of_an_epoch_is_told_of():
    def make(optimizer):
        schedule = {"scheduler": StepLR(optimizer, 1), "interval": "step", "frequency": 4}
        return [optimizer], [schedule]

    with pytest.warns(UserWarning, match="StepLR with frequency=4 never steps"):
        from_lightning(returning(make)).run(BATCHES, max_epochs=2)


# Values that are logged


class Logging(Small):
    def training_step(self, batch, batch_idx):
        number = batch.max()
        self.log("now", number)
        self.log("mean", number, on_step=True, on_epoch=True)
        self.log("sum", number, on_step=False, on_epoch=True, reduce_fx=torch.sum)
        self.log("least", number, on_step=False, on_epoch=True, reduce_fx="min")
        self.log("each", number, on_step=False, on_epoch=True, batch_size=1)
        return self.loss(batch)

    def on_train_epoch_end(self):
        self.log("at_the_end", 7)

    def validation_step(self, batch, batch_idx):
        self.log("val_number", batch.max())

    def test_step(self, batch, batch_idx):
        self.log("test_number", batch.max())

    def predict_step(self, batch, batch_idx):
        return 2 * batch


def test_values_are_in_the_metrics_under_their_names():
    metrics = run(Logging()).metrics
    found = {name: float(value) for name, value in metrics.items()}
    assert found == {
        **{"now": 3, "mean": pytest.approx(18 / 10), "mean_step": 3, "at_the_end": 7},
        **{"mean_epoch": pytest.approx(18 / 10), "sum": 6, "least": 1, "each": 2},
    }


def test_values_of_an_evaluation_keep_their_names():
    engine = from_lightning(Logging()).add(Validate(BATCHES), Validate(BATCHES[:1], name="other"))
    metrics = engine.run(BATCHES, max_epochs=1).metrics
    assert float(metrics["val_number"]) == pytest.approx(1.8)
    assert float(metrics["other/val_number"]) == 1
    assert [name for name in metrics if name.startswith("val/")] == []
    assert engine.evaluate(BATCHES[:1]).metrics == {"val_number": 1}
    assert engine.evaluate(BATCHES[:1], name="test").metrics == {"test_number": 1}
    predicted = engine.evaluate(BATCHES[:1], name="predict").output
    assert torch.equal(predicted, 2 * BATCHES[0])


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (
            lambda self, loss: self.log("a", torch.ones(2)),
            r"log\('a'\) got a tensor of shape \(2,\)",
        ),
        (lambda self, loss: self.log("a", {"b": 1}), r"log\('a'\) got a dictionary; use log_dict"),
        (
            lambda self, loss: self.log("a", loss, on_epoch=True, reduce_fx="median"),
            r"reduce_fx='median'\): needs one of mean, sum, min, max",
        ),
        (lambda self, loss: self.log("a", loss, on_step=False, on_epoch=False), r"on_epoch=False"),
        (
            lambda self, loss: [
                self.log("a", loss, on_epoch=True, reduce_fx=reduce) for reduce in ("sum", "min")
            ],
            r"log\('a'\) was called with reduce_fx='sum' before",
        ),
    ],
)
def test_what_cannot_be_logged_is_an_error(log, message):
    class Wrong(Small):
        def training_step(self, batch, batch_idx):
            loss = self.loss(batch)
            log(self, loss)
            return loss

    with pytest.raises(ValueError, match=message):
        run(Wrong())


def test_a_module_without_training_step_evaluates():
    class Evaluating(lightning.LightningModule):
        def validation_step(self, batch, batch_idx):
            self.log("number", batch.max())

    engine = from_lightning(Evaluating())
    assert engine.evaluate(BATCHES[:1]).metrics == {"number": 1}
    with pytest.raises(ValueError, match=r"Evaluating has no training_step: this engine only"):
        engine.run(BATCHES, max_epochs=1)


def test_hooks_at_the_end_of_an_epoch_read_what_was_logged_over_it():
    class Reading(Logging):
        def on_train_epoch_end(self):
            super().on_train_epoch_end()
            self.mean = self.trainer.callback_metrics["mean_epoch"]

        def on_validation_epoch_end(self):
            self.number = self.trainer.callback_metrics["val_number"]
            self.log("val_twice", 2 * self.number)

    engine = from_lightning(module := Reading()).add(Validate(BATCHES))
    metrics = engine.run(BATCHES, max_epochs=1).metrics
    assert (module.mean, module.number) == (metrics["mean_epoch"], metrics["val_number"])
    assert metrics["val_twice"] == 2 * module.number


# Manual optimisation


class Manual(Small):
    """Two optimizers; the second one steps with every second batch, and sums its gradients."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.other = nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        first, second = self.optimizers()
        first.zero_grad()
        self.manual_backward(self.loss(batch))
        first.step()
        self.manual_backward(self.other(batch).pow(2).mean())
        if batch_idx % 2:
            second.step()
            second.zero_grad()

    def configure_optimizers(self):
        parts = (self.layer, self.other)
        return [torch.optim.SGD(each.parameters(), lr=0.1) for each in parts]


def test_steps_of_manual_optimisation_are_announced():
    engine, seen = from_lightning(Manual()), []
    engine.on(LightningEvents.OTHER_STEP_COMPLETED)(lambda state: seen.append(state.optimizer))
    engine.add(ClipGradNorm(0.01, optimizer=engine.objects["optimizer_2"], name="other"))
    state = engine.run(BATCHES, max_epochs=2)
    assert (state.step, state.counts[LightningEvents.OTHER_STEP_COMPLETED]) == (6, 2)
    assert set(map(id, seen)) == {id(engine.objects["optimizer_2"])}
    assert state.metrics["grad_norm/other"] > 0.01


class ClearedSeldom(Manual):
    """Its gradients go on adding up after a step."""

    def training_step(self, batch, batch_idx):
        if batch_idx % 2 == 0:
            self.optimizers()[0].zero_grad()
        self.manual_backward(self.loss(batch))
        self.optimizers()[0].step()


@pytest.mark.slow
@pytest.mark.parametrize("make", [Manual, ClearedSeldom])
def test_gradients_that_a_later_step_uses_are_saved(make, tmp_path):
    def attempt(limit, directory):
        module = make()
        every = Checkpoint(directory, when=Events.ITERATION_COMPLETED, resume=True)
        from_lightning(module).add(every).run(BATCHES, max_iterations=limit)
        return module.state_dict()

    whole = attempt(6, tmp_path / "whole")
    for limit in range(1, 7):
        parts = attempt(limit, tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_guard_may_skip_a_manual_step():
    class Broken(Manual):
        def training_step(self, batch, batch_idx):
            first, _ = self.optimizers()
            first.zero_grad()
            self.manual_backward(self.loss(batch) * (float("nan") if batch_idx == 1 else 1))
            first.step()

    state = from_lightning(Broken()).add(NonFiniteGuard("skip")).run(BATCHES, max_epochs=1)
    assert (state.step, state.metrics["skipped_steps"]) == (2, 1)


def test_what_manual_optimisation_does_not_take_is_an_error():
    with pytest.raises(ValueError, match=r"Manual has automatic_optimization = False: accumulate="):
        from_lightning(Manual(), accumulate=2)
    closing = type("Closing", (Manual,), {})
    closing.training_step = lambda self, batch: self.optimizers()[0].step(lambda: None)
    with pytest.raises(ValueError, match=r"step\(closure\) is not taken in manual optimisation"):
        run(closing())
    wrong = type("Wrong", (Small,), {})
    wrong.training_step = lambda self, batch: self.manual_backward(self.loss(batch))
    with pytest.raises(MisconfigurationException, match=r"to use manual_backward, please disable"):
        run(wrong())  # Lightning's own words


# Other handlers


def test_an_average_of_the_weights_is_made_and_evaluated():
    module = Logging()
    engine = from_lightning(module).add(EMA(decay=0.5), Validate(BATCHES, weights="ema"))
    state = engine.run(BATCHES, max_epochs=1)
    assert float(state.metrics["val_number"]) == pytest.approx(1.8)
    assert not torch.equal(engine.objects["ema"].layer.weight, module.layer.weight)
    copy.deepcopy(module)


@pytest.mark.slow
def test_modules_of_the_older_package_are_taken():
    pytest.importorskip("pytorch_lightning")
    import pytorch_lightning

    class Older(pytorch_lightning.LightningModule):
        __init__ = Small.__init__

    names = ("loss", "training_step", "configure_optimizers")
    for name in names:
        setattr(Older, name, getattr(Small, name))
    Older.__init__ = lambda self: (
        pytorch_lightning.LightningModule.__init__(self),
        setattr(self, "layer", nn.Linear(2, 1)),
    )[0]
    assert run(Older()).step == 3


@pytest.mark.slow
def test_ranks_average_gradients_and_logged_values(processes):
    processes.run_ranks(2, Path(__file__).with_name("on_ranks.py"))


def test_a_run_begins_with_empty_metrics_after_one_that_failed():
    class Failing(Small):
        def __init__(self):
            super().__init__()
            self.seen, self.fails = SumMetric(), True

        def training_step(self, batch, batch_idx):
            self.seen.update(len(batch))
            if self.fails and batch_idx == 1:
                raise OSError("no network")
            self.log("seen", self.seen, on_step=False, on_epoch=True)
            return self.loss(batch)

    engine = from_lightning(module := Failing())
    with pytest.raises(OSError, match="no network"):
        engine.run(BATCHES, max_epochs=1)
    module.fails = False
    assert engine.run(BATCHES, max_epochs=1).metrics["seen"] == 10


def test_a_module_may_step_its_scheduler_in_its_own_way():
    class Own(Small):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            return [optimizer], [StepLR(optimizer, 1)]

        def lr_scheduler_step(self, scheduler, metric):
            for _ in range(3):
                scheduler.step()

    engine = from_lightning(Own())
    engine.run(BATCHES, max_epochs=1)
    assert engine.objects["scheduler"].last_epoch == 3
