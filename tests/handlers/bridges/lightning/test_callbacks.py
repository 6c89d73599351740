"""Callbacks of Lightning's on an engine made by `from_lightning`."""

import pytest
import torch

from camshaft import Engine
from camshaft.handlers import Checkpoint, ClipGradNorm, FromLightning, Validate, checkpoints
from camshaft.handlers.bridges.lightning import from_lightning

callbacks = pytest.importorskip("lightning.pytorch.callbacks")
from lightning.pytorch import LightningModule  # noqa: E402  # after the skip


class Small(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).pow(2).mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch).pow(2).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


BATCHES = [torch.ones(4, 2), torch.full((4, 2), 2.0)]


class Diary(callbacks.Callback):
    def __init__(self):
        self.lines = []

    def on_train_start(self, trainer, pl_module):
        self.lines.append("start")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.lines.append((trainer.current_epoch, batch_idx, trainer.global_step))
        assert outputs["loss"] == trainer.callback_metrics["train_loss"]
        assert batch is BATCHES[batch_idx]

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        assert pl_module.layer.weight.grad is not None
        assert isinstance(optimizer, torch.optim.SGD)

    def on_validation_epoch_end(self, trainer, pl_module):
        self.lines.append("validated")
        assert not pl_module.training

    def on_train_epoch_end(self, trainer, pl_module):
        self.lines.append("epoch")

    def state_dict(self):
        return {"lines": list(self.lines)}

    def load_state_dict(self, state_dict):
        self.lines = state_dict["lines"]


def test_a_callback_is_called_where_lightning_calls_it_and_its_state_is_saved(tmp_path):
    def run(epochs):
        diary = Diary()
        engine = from_lightning(Small())
        engine.add(FromLightning(diary), Validate(BATCHES), Checkpoint(tmp_path, resume=True))
        engine.run(BATCHES, max_epochs=epochs)
        return diary.lines

    first = ["start", (0, 0, 1), (0, 1, 2), "validated", "epoch"]
    assert run(1) == first
    assert len(checkpoints(tmp_path)) == 1
    assert run(2) == [*first, "start", (1, 0, 3), (1, 1, 4), "validated", "epoch"]


class Stopper(callbacks.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        pl_module.log("seen", 1.0)
        trainer.should_stop = trainer.global_step == 3


def test_a_callback_may_stop_the_run_and_log():
    engine = from_lightning(Small()).add(FromLightning(Stopper()))
    state = engine.run(BATCHES, max_epochs=9)
    assert (state.step, state.stop_reason) == (3, "trainer.should_stop")
    assert state.metrics["seen"] == 1


def test_a_callback_is_called_before_the_module_with_the_batch_that_the_module_gets():
    lines = []

    class Both(Small):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            return 2 * batch

        def on_train_batch_start(self, batch, batch_idx):
            lines.append(("module", batch.max().item()))

        test_step = Small.validation_step

    class Watching(callbacks.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            lines.append(("callback", batch.max().item()))

        def on_after_backward(self, trainer, pl_module):
            lines.append(("gradient", pl_module.layer.weight.grad is not None))

        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            norm = torch.cat([each.grad.flatten() for each in pl_module.parameters()]).norm()
            lines.append(("before clipping", bool(norm > 1e-3)))

        def on_test_epoch_end(self, trainer, pl_module):
            lines.append(("tested", "val_loss" in trainer.callback_metrics))

        def on_exception(self, trainer, pl_module, exception):
            lines.append(("failed", str(exception).splitlines()[0]))

    engine = from_lightning(Both()).add(ClipGradNorm(1e-6), FromLightning(Watching()))
    engine.run(BATCHES[:1], max_epochs=1)
    engine.evaluate(BATCHES, name="test")
    calls = [("callback", 2), ("module", 2), ("gradient", True), ("before clipping", True)]
    assert lines == [*calls, ("tested", True)]
    with pytest.raises(RuntimeError, match=r"mat1 and mat2"):
        engine.run([torch.ones(2, 3)], max_epochs=1)
    assert lines[-1][1].startswith("mat1 and mat2")


def test_a_callback_that_camshaft_has_a_handler_for_is_refused_by_name():
    with pytest.raises(ValueError, match=r'EarlyStopping .* by EarlyStopping\("val'):
        FromLightning(callbacks.EarlyStopping("val_loss"))
    with pytest.raises(ValueError, match=r"ModelCheckpoint works on .* done by Checkpoint"):
        FromLightning(callbacks.ModelCheckpoint())


def test_other_engines_and_other_things_are_refused():
    with pytest.raises(TypeError, match=r"made by from_lightning\(module\)"):
        Engine(lambda state, batch: None).add(FromLightning(Diary()))
    with pytest.raises(TypeError, match=r"needs a Callback of Lightning's"):
        FromLightning(print)


def test_what_the_small_trainer_lacks_is_named():
    class Curious(callbacks.Callback):
        def on_train_start(self, trainer, pl_module):
            trainer.save_checkpoint("here.ckpt")

    engine = from_lightning(Small()).add(FromLightning(Curious()))
    with pytest.raises(AttributeError, match=r"trainer\.save_checkpoint is not known"):
        engine.run(BATCHES, max_epochs=1)
