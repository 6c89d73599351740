"""Lightning, with its own callbacks and logger; it is installed for the benchmarks alone."""

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning  # pyright: ignore[reportMissingImports]
import task
import torch
from lightning.pytorch.callbacks import ModelCheckpoint  # pyright: ignore[reportMissingImports]
from lightning.pytorch.loggers import TensorBoardLogger  # pyright: ignore[reportMissingImports]

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


class Module(lightning.LightningModule):
    """The model and its step; `steps` is how long the schedule is, if there is one."""

    def __init__(self, steps: int | None) -> None:
        super().__init__()
        self.model = task.make_model()
        self.steps = steps

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        inputs, targets = batch
        loss = task.loss_fn(self.model(inputs), targets)
        if self.steps is not None:
            self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = task.make_optimizer(self.model)
        if self.steps is None:
            return optimizer
        schedule = {"scheduler": task.make_schedule(optimizer, self.steps), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def plain(loader: task.TimedLoader, epochs: int) -> None:
    """`barebones`: Lightning's own switch for everything that costs time, off."""
    trainer = lightning.Trainer(barebones=True, accelerator="cpu", devices=1, max_epochs=epochs)
    trainer.fit(Module(None), loader)


def everything(loader: task.TimedLoader, epochs: int, directory: Path) -> None:
    """The Trainer's own clipping and progress bar, its logger and its checkpoints."""
    checkpoint = ModelCheckpoint(
        dirpath=directory / "saved",
        every_n_train_steps=task.SAVE_EVERY,
        save_top_k=task.KEEP,
        monitor="step",
        mode="max",
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=epochs,
        gradient_clip_val=task.MAX_NORM,
        logger=TensorBoardLogger(directory),
        log_every_n_steps=task.LOG_EVERY,
        callbacks=[checkpoint],
        enable_model_summary=False,
    )
    trainer.fit(Module(epochs * len(loader)), loader)
