"""A step of one's own: two optimizers that take turns, and an event of one's own.

A small GAN learns the distribution of a mixture of two Gaussians in one dimension. The critic is
updated with every batch and announces it; the generator is updated with every second batch.

    python examples/gan.py
"""

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, EventEnum, Events, State, Update
from camshaft.handlers import ClipGradNorm, ProgressBar

LATENT = 8  # random numbers from which the generator makes one sample


class GanEvents(EventEnum):
    """What a GAN's step announces besides the engine's events."""

    CRITIC_UPDATED = "critic_updated"


def real_or_fake(logits: Tensor, real: bool) -> Tensor:
    """The loss of a critic's logits if all of them should say `real`."""
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


def build() -> tuple[Engine[list[Tensor], dict[str, Tensor]], nn.Module]:
    """The engine that trains a generator against a critic, and the generator."""
    generator = nn.Sequential(nn.Linear(LATENT, 32), nn.ReLU(), nn.Linear(32, 1))
    critic = nn.Sequential(nn.Linear(1, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))

    update_generator = Update(generator_optimizer)  # its steps are the run's: state.step
    update_critic = Update(critic_optimizer, event=GanEvents.CRITIC_UPDATED)

    def train_step(state: State, batch: list[Tensor]) -> dict[str, Tensor]:
        (real,) = batch
        fake = generator(torch.randn(len(real), LATENT))

        critic_loss = real_or_fake(critic(real), True) + real_or_fake(critic(fake.detach()), False)
        update_critic(state, critic_loss)
        state.metrics["critic_loss"] = critic_loss.detach()

        if state.iteration % 2 == 0:
            generator_loss = real_or_fake(critic(fake), True)
            update_generator(state, generator_loss)
            state.metrics["generator_loss"] = generator_loss.detach()
        return {"fake": fake.detach()}

    engine = Engine(
        train_step,
        ClipGradNorm(5.0, optimizer=critic_optimizer),
        objects={
            "generator": generator,
            "critic": critic,
            "generator_optimizer": generator_optimizer,
            "critic_optimizer": critic_optimizer,
        },
    )
    return engine, generator


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and look at what the generator makes."""
    parser = argparse.ArgumentParser(description="A GAN with two optimizers.")
    parser.add_argument("--max-epochs", type=int, default=40)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    centres = torch.where(torch.rand(4096, 1) < 0.5, -2.0, 2.0)
    data = TensorDataset(centres + 0.3 * torch.randn(4096, 1))
    loader = DataLoader(data, 128, shuffle=True, drop_last=True)
    engine, generator = build()
    engine.add(ProgressBar("critic_loss", "generator_loss"))

    @engine.on(GanEvents.CRITIC_UPDATED(every=320) | Events.COMPLETED)
    def report(state: State) -> None:
        with torch.no_grad():
            made = generator(torch.randn(2000, LATENT))
        print(
            f"iteration {state.iteration}, generator step {state.step}: "
            f"mean {made.mean():+.2f}, mean distance from 0 {made.abs().mean():.2f} (data: 2.00)"
        )

    print(engine.describe())
    state = engine.run(loader, max_epochs=options.max_epochs, max_batches=options.max_batches)
    updates = state.counts[GanEvents.CRITIC_UPDATED]
    print(f"{state.iteration} iterations, {updates} critic updates, {state.step} generator steps")


if __name__ == "__main__":
    main()
