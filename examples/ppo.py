"""PPO: a vector of environments is saved with the run, in the middle of its episodes.

A policy learns to balance poles on carts (Schulman et al., 2017). Each batch is a rollout: all
carts move for some steps, from where the last rollout has left them, and the policy makes several
updates. The carts are the memory of the process function, `state.recall(learn, ...)`, so
checkpoints hold where each cart is and what random numbers it will draw.

    python examples/ppo.py
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Bernoulli

from camshaft import Engine, Events, State, Update
from camshaft.handlers import Checkpoint, ClipGradNorm, ConsoleLines, JSONLines, LRSchedule
from camshaft.handlers.schedules import linear

Floats = NDArray[np.float64]


class Carts:
    """Cart-poles, used like a vector of Gymnasium's: a pole that has fallen begins anew at once.

    A row is a cart: its position and speed, and its pole's angle and angular speed. The moves are
    those of Barto et al., 1983.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.generators = [np.random.default_rng((seed, number)) for number in range(count)]
        self.places = np.stack([self.begin(number) for number in range(count)])

    def begin(self, number: int) -> Floats:
        """Where a cart begins: near the middle, by random numbers that it alone draws."""
        return self.generators[number].uniform(-0.05, 0.05, 4)

    def step(self, actions: NDArray[Any]) -> tuple[Floats, NDArray[np.bool_]]:
        """Push each cart to the left (0) or right (1): where they are, and who has fallen."""
        _, speed, angle, turn = self.places.T
        sine, cosine = np.sin(angle), np.cos(angle)
        force = (20 * actions - 10 + 0.05 * turn**2 * sine) / 1.1
        bend = (9.8 * sine - cosine * force) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        change = np.stack([speed, force - 0.05 * bend * cosine / 1.1, turn, bend], 1)
        self.places = self.places + 0.02 * change
        fallen = (abs(self.places[:, 0]) > 2.4) | (abs(self.places[:, 2]) > math.radians(12))
        for number in np.flatnonzero(fallen):
            self.places[number] = self.begin(int(number))
        return self.places, fallen

    def state_dict(self) -> dict[str, Any]:
        """All that the next steps depend on."""
        states = [each.bit_generator.state for each in self.generators]
        return {"places": self.places, "generators": states}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from there."""
        self.places = saved["places"]
        for generator, state in zip(self.generators, saved["generators"], strict=True):
            generator.bit_generator.state = state


@dataclass
class Memory:
    """What the process function remembers from rollout to rollout."""

    carts: Carts
    length: float = 0.0
    """The steps of an episode, lately."""


def advantages_of(values: Tensor, fallen: Tensor, discount: float, trace: float) -> Tensor:
    """How much better than expected each action was (GAE; Schulman et al., 2016): (time, cart).

    Each step earns 1. `values` are those of all places, the last one included.
    """
    stands = 1 - fallen
    surprise = 1 + discount * stands * values[1:] - values[:-1]
    found, later = torch.empty_like(surprise), torch.zeros_like(surprise[0])
    for time in reversed(range(len(surprise))):
        found[time] = later = surprise[time] + discount * trace * stands[time] * later
    return found


def build(model: nn.Module, options: argparse.Namespace) -> Engine[int, None]:
    """The engine that plays and improves the model: its outputs are an action and a value."""
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr, eps=1e-5)
    update = Update(optimizer)

    def learn(state: State[int, None], number: int) -> None:
        memory = state.recall(learn, lambda: Memory(Carts(options.carts, options.seed)))
        carts = memory.carts
        places, actions, fallen = (
            [torch.tensor(carts.places).float()],
            list[Tensor](),
            list[Tensor](),
        )
        with torch.no_grad():
            for _ in range(options.time):
                actions.append(Bernoulli(logits=model(places[-1])[:, 0]).sample())
                where, fell = carts.step(actions[-1].numpy())
                places.append(torch.tensor(where).float())
                fallen.append(torch.tensor(fell).float())
            outputs = model(torch.stack(places))
        old = Bernoulli(logits=outputs[:-1, :, 0]).log_prob(torch.stack(actions)).flatten()
        values = outputs[..., 1]
        better = advantages_of(values, torch.stack(fallen), 0.99, 0.95)
        seen, chosen = torch.cat(places[:-1]), torch.cat(actions)
        targets, better = (better + values[:-1]).flatten(), better.flatten()
        loss = torch.tensor(math.nan)

        for _ in range(options.passes):
            for part in torch.randperm(len(seen)).split(options.batch_size):
                logits, value = model(seen[part]).unbind(1)
                policy = Bernoulli(logits=logits)
                ratio = (policy.log_prob(chosen[part]) - old[part]).exp()
                gain = (better[part] - better[part].mean()) / (better[part].std() + 1e-8)
                clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
                loss = (
                    -torch.min(ratio * gain, clipped * gain).mean()
                    + 0.5 * (value - targets[part]).square().mean()
                    - 0.01 * policy.entropy().mean()
                )
                update(state, loss)
        falls = float(torch.stack(fallen).sum())
        length = len(seen) / max(falls, 1.0)
        memory.length = length if number == 0 else 0.9 * memory.length + 0.1 * length
        state.metrics.update(loss=loss, length=length, lately=memory.length)

    objects = {"model": model, "optimizer": optimizer}
    return Engine(learn, update, objects=objects).add(
        ClipGradNorm(0.5), LRSchedule(linear(final=0.0))
    )


class ActorCritic(nn.Module):
    """How likely a push to the right is, and what is to be earned: (..., 4) to (..., 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = (
            nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), last)
            for last in (nn.Linear(32, 1), nn.Linear(32, 1))
        )

    def forward(self, places: Tensor) -> Tensor:
        """The logit of an action, and the value."""
        return torch.cat([self.actor(places), self.critic(places)], -1)


def main(arguments: Sequence[str] | None = None) -> State[int, None]:
    """Play and learn, or carry on."""
    parser = argparse.ArgumentParser(description="PPO with a vector of environments.")
    parser.add_argument("--directory", type=Path, default=Path("runs/ppo"))
    parser.add_argument("--rollouts", type=int, default=60)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--carts", type=int, default=8)
    parser.add_argument("--time", type=int, default=64, help="steps of a rollout")
    parser.add_argument("--passes", type=int, default=4, help="over the steps of a rollout")
    parser.add_argument("--batch-size", type=int, default=128, help="steps of an update")
    parser.add_argument("--clip", type=float, default=0.2, help="of the ratio of probabilities")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    torch.manual_seed(options.seed)
    updates = options.passes * math.ceil(options.carts * options.time / options.batch_size)
    engine = build(ActorCritic(), options).add(
        Checkpoint(options.directory, when=Events.ITERATION_COMPLETED(every=10), resume=True),
        JSONLines(options.directory / "rows.jsonl", when=Events.ITERATION_COMPLETED),
        ConsoleLines("length", "lately", when=Events.ITERATION_COMPLETED(every=10)),
    )
    rollouts = range(options.rollouts)
    state = engine.run(
        rollouts, max_steps=updates * options.rollouts, max_batches=options.max_batches
    )
    print(f"{state.iteration} rollouts: {float(state.metrics['lately']):.0f} steps an episode")
    return state


if __name__ == "__main__":
    main()
