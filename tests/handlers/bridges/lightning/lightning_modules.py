"""Five public LightningModules and one more, rewritten small, with the data of their runs.

As a script it trains one of them by Camshaft: `lightning_modules.py NAME DIRECTORY RESULT`. The
environment variable KILL_AT is the iteration in which the process kills itself.
"""

import os
import signal
import sys
import warnings

import lightning
import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MaxMetric, MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score


class Classifier(LightningModule):
    """After Lightning's basic image classifier: logged losses, and metrics of torchmetrics."""

    def __init__(self, hidden=16, learning_rate=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(
            nn.Linear(12, self.hparams.hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 3)
        )
        self.train_accuracy = MulticlassAccuracy(3)
        self.val_accuracy = MulticlassAccuracy(3)
        self.seen = []

    def forward(self, inputs):
        return self.body(inputs)

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        scores = self(inputs)
        loss = functional.cross_entropy(scores, targets)
        self.log("train_loss", loss, on_epoch=True, prog_bar=True)
        self.log("largest", scores.max(), on_step=False, on_epoch=True, reduce_fx="max")
        self.train_accuracy(scores, targets)
        self.log("train_accuracy", self.train_accuracy, on_step=True, on_epoch=True)
        return {"loss": loss, "scores": scores.detach()}

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.seen.append((batch_idx, len(outputs["scores"])))

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        scores = self(inputs)
        self.log("val_loss", functional.cross_entropy(scores, targets), on_step=True)
        self.val_accuracy.update(scores, targets)

    def on_validation_epoch_end(self):
        self.log("val_accuracy", self.val_accuracy.compute())
        self.val_accuracy.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.learning_rate, momentum=0.9)


class VariationalAutoencoder(LightningModule):
    """After the VAE of lightning-bolts: random numbers in each step, and values logged together."""

    def __init__(self, latent=3, learning_rate=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.mean = nn.Linear(16, latent)
        self.spread = nn.Linear(16, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 16), nn.ReLU(), nn.Linear(16, 12))

    def step(self, batch):
        (inputs,) = batch
        hidden = self.encoder(inputs)
        near = torch.distributions.Normal(self.mean(hidden), torch.exp(self.spread(hidden) / 2))
        prior = torch.distributions.Normal(0.0, 1.0)
        made = self.decoder(near.rsample())
        reconstruction = functional.mse_loss(made, inputs)
        divergence = 0.1 * torch.distributions.kl_divergence(near, prior).mean()
        loss = reconstruction + divergence
        return loss, {"reconstruction": reconstruction, "divergence": divergence, "loss": loss}

    def training_step(self, batch, batch_idx):
        loss, logs = self.step(batch)
        self.log_dict({f"train_{name}": each for name, each in logs.items()})
        return loss

    def validation_step(self, batch, batch_idx):
        loss, logs = self.step(batch)
        self.log_dict({f"val_{name}": each for name, each in logs.items()})
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.learning_rate)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        return [optimizer], [scheduler]


class Gan(LightningModule):
    """After Lightning's generative adversarial net: two optimizers in manual optimisation."""

    def __init__(self, latent=4, learning_rate=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(latent, 16), nn.ReLU(), nn.Linear(16, 12))
        self.critic = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, noise):
        return self.generator(noise)

    def training_step(self, batch):
        (real,) = batch
        of_generator, of_critic = self.optimizers()
        noise = torch.randn(len(real), self.hparams.latent).type_as(real)
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)

        self.toggle_optimizer(of_generator)
        judged = self.critic(self(noise))
        generator_loss = functional.binary_cross_entropy_with_logits(judged, ones)
        of_generator.zero_grad()
        self.manual_backward(generator_loss)
        of_generator.step()
        self.untoggle_optimizer(of_generator)

        self.toggle_optimizer(of_critic)
        of_real = functional.binary_cross_entropy_with_logits(self.critic(real), ones)
        of_fake = functional.binary_cross_entropy_with_logits(
            self.critic(self(noise).detach()), zeros
        )
        critic_loss = (of_real + of_fake) / 2
        of_critic.zero_grad()
        self.manual_backward(critic_loss)
        self.clip_gradients(of_critic, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        of_critic.step()
        self.untoggle_optimizer(of_critic)
        self.log_dict({"generator_loss": generator_loss, "critic_loss": critic_loss})

    def on_train_epoch_end(self):
        for each in self.lr_schedulers():
            each.step()

    def configure_optimizers(self):
        found = []
        for part in (self.generator, self.critic):
            optimizer = torch.optim.Adam(
                part.parameters(), self.hparams.learning_rate, betas=(0.5, 0.999)
            )
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            found.append({"optimizer": optimizer, "lr_scheduler": scheduler})
        return found


class LanguageModel(LightningModule):
    """After Lightning's transformer, with the warm-up by steps that public modules add to it."""

    def __init__(self, tokens=11, width=8, steps=12):
        super().__init__()
        self.save_hyperparameters()
        self.embedding = nn.Embedding(tokens, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, tokens)

    def training_step(self, batch, batch_idx):
        (text,) = batch
        input, target = text[:, :-1], text[:, 1:]
        mask = nn.Transformer.generate_square_subsequent_mask(input.shape[1])
        scores = self.head(self.block(self.embedding(input), src_mask=mask))
        loss = functional.cross_entropy(scores.flatten(0, 1), target.flatten())
        self.log("train_loss", loss, batch_size=target.numel(), on_step=True, on_epoch=True)
        return loss

    def on_before_optimizer_step(self, optimizer):
        norms = [each.grad.norm() for each in self.parameters() if each.grad is not None]
        self.log("grad_norm", torch.stack(norms).norm())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step", "frequency": 1},
        }

    def factor(self, step):
        return min(1.0, (step + 1) / self.hparams.steps)


class FineTuned(LightningModule):
    """After Lightning's fine-tuning: a frozen body, groups, a rate that waits for a loss."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 3)
        self.epochs_trained = 0

    def on_train_epoch_start(self):
        thawed = self.current_epoch >= 1
        for each in self.body.parameters():
            each.requires_grad = thawed

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        loss = functional.cross_entropy(self.head(self.body(inputs)), targets)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        scores = self.head(self.body(inputs))
        self.log("val_loss", functional.cross_entropy(scores, targets))
        self.log("val_right", (scores.argmax(1) == targets).sum().float(), reduce_fx="sum")

    def on_train_epoch_end(self):
        self.epochs_trained += 1

    def on_save_checkpoint(self, checkpoint):
        checkpoint["epochs_trained"] = self.epochs_trained

    def on_load_checkpoint(self, checkpoint):
        self.epochs_trained = checkpoint["epochs_trained"]

    def configure_optimizers(self):
        groups = [
            {"params": self.body.parameters(), "lr": 1e-2},
            {"params": self.head.parameters()},
        ]
        optimizer = torch.optim.Adam(groups, lr=5e-2)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.1)
        return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "val_loss"}


class Measured(LightningModule):
    """A collection of metrics that is logged as a whole, and values that hooks read again."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        metrics = {"accuracy": MulticlassAccuracy(3), "f1": MulticlassF1Score(3)}
        self.train_metrics = MetricCollection(metrics, prefix="train_")
        self.val_metrics = MetricCollection(metrics, prefix="val_").clone()
        self.mean_loss = MeanMetric()
        self.best = MaxMetric()

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        scores = self.body(inputs)
        loss = functional.cross_entropy(scores, targets)
        self.log_dict(self.train_metrics(scores, targets))
        self.mean_loss(loss)
        self.log("train_mean", self.mean_loss, on_step=True, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        found = self.train_metrics.compute()
        self.log_dict({f"epoch_{name}": value for name, value in found.items()})
        self.log("train_mean_again", self.trainer.callback_metrics["train_mean_epoch"])
        self.train_metrics.reset()

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        self.val_metrics.update(self.body(inputs), targets)
        self.log_dict(self.val_metrics, on_epoch=True)

    def on_validation_epoch_end(self):
        self.best.update(self.trainer.callback_metrics["val_accuracy"])
        self.log("val_best", self.best.compute())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9, nesterov=True)


MODULES = {
    "measured": (Measured, {}),
    "classifier": (Classifier, {}),
    "vae": (VariationalAutoencoder, {}),
    "gan": (Gan, {}),
    "language_model": (LanguageModel, {"accumulate": 2, "clip": 0.25}),
    "fine_tuned": (FineTuned, {"clip": 1.0}),
}
EPOCHS = 3


def data(name):
    """The loaders of training and of validation; None where a module has no validation."""
    generator = torch.Generator().manual_seed(1)
    if name == "language_model":
        first = torch.randint(11, (48, 1), generator=generator)
        return DataLoader(TensorDataset((first + torch.arange(9)) % 11), 6, shuffle=True), None
    inputs = torch.randn(58, 12, generator=generator)
    tensors = (
        (inputs, inputs[:, :3].argmax(1))
        if name in ("classifier", "fine_tuned", "measured")
        else (inputs,)
    )
    samples = TensorDataset(*(each[:38] for each in tensors))
    held_out = TensorDataset(*(each[38:] for each in tensors))
    training = DataLoader(samples, 8, shuffle=True, generator=torch.Generator().manual_seed(2))
    return training, None if name == "gan" else DataLoader(held_out, 8)


def by_camshaft(name, *handlers):
    """The module and the metrics after a run by Camshaft."""
    from camshaft.handlers import ClipGradNorm, Validate
    from camshaft.handlers.bridges.lightning import from_lightning

    make, options = MODULES[name]
    torch.manual_seed(0)
    module = make()
    training, validation = data(name)
    engine = from_lightning(module, accumulate=options.get("accumulate", 1))
    if clip := options.get("clip"):
        engine.add(ClipGradNorm(clip))
    if validation is not None:
        engine.add(Validate(validation))
    torch.manual_seed(3)
    return module, engine.add(*handlers).run(training, max_epochs=EPOCHS).metrics


def by_lightning(name):
    """The module and the metrics after a run by Lightning's Trainer.

    Its validations draw from the generator of the training, which Camshaft's leave as it was: here
    they have a generator of their own.
    """
    make, given = MODULES[name]
    torch.manual_seed(0)
    module = make()
    training, validation = data(name)
    quiet = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        accumulate_grad_batches=given.get("accumulate", 1),
        gradient_clip_val=given.get("clip"),
        num_sanity_val_steps=0,
        **dict.fromkeys(quiet, False),
    )
    validations = trainer.fit_loop.epoch_loop.val_loop
    run = validations.run

    def run_apart():
        with torch.random.fork_rng():
            return run()

    validations.run = run_apart
    torch.manual_seed(3)
    with warnings.catch_warnings():  # of workers, and of how small the runs are
        warnings.simplefilter("ignore")
        trainer.fit(module, training, validation)
    return module, trainer.callback_metrics


def main(name, directory, result):
    """Train by Camshaft, resume what is there, and save the weights and metrics."""
    from camshaft import Events
    from camshaft.handlers import Checkpoint

    class Killed:
        def attach(self, engine):
            @engine.on(Events.ITERATION_COMPLETED)
            def kill(state):
                if state.iteration == int(os.environ.get("KILL_AT", "0")):
                    os.kill(os.getpid(), signal.SIGKILL)

    checkpoint = Checkpoint(
        directory, when=Events.ITERATION_COMPLETED(every=1), resume=True, background=False
    )
    module, metrics = by_camshaft(name, checkpoint, Killed())
    torch.save([module.state_dict(), dict(metrics), getattr(module, "epochs_trained", 0)], result)


if __name__ == "__main__":
    main(*sys.argv[1:])
