"""Reinforcement learning: each batch is a set of episodes that the policy has just played.

A policy learns to balance poles on carts by REINFORCE (Williams, 1992). The data plays: whenever
the engine asks for a batch, the policy plays some episodes side by side. What is to be expected of
an episode, the baseline, is the memory of the process function, `state.recall(learn, Memory)`. Both
are in the checkpoints, so a run that was interrupted goes on as if it was not.

    python examples/reinforce.py
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli

from camshaft import Engine, Events, State, Update
from camshaft.handlers import Checkpoint, ConsoleLines, StopOnSignal

MOST = 200  # steps of an episode
DISCOUNT = 0.98  # of what comes a step later


class Episodes(NamedTuple):
    """Episodes that were played side by side: (time, episode)."""

    observations: Tensor
    actions: Tensor
    alive: Tensor
    """1.0 for each step before the pole fell; it is the reward, too."""


@dataclass
class Memory:
    """What was to be expected lately."""

    returns: Tensor = field(default_factory=lambda: torch.zeros(MOST))
    """The discounted reward from each step of an episode on."""
    length: float = 0.0
    """The steps of an episode."""


def push(carts: Tensor, actions: Tensor) -> Tensor:
    """Where the carts are after a push to the left or right: the cart-pole of Barto et al., 1983.

    A row is a cart: its position and speed, and its pole's angle and angular speed.
    """
    _, speed, angle, turn = carts.unbind(1)
    sine, cosine = angle.sin(), angle.cos()
    force = (20 * actions - 10 + 0.05 * turn**2 * sine) / 1.1
    bend = (9.8 * sine - cosine * force) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    change = torch.stack([speed, force - 0.05 * bend * cosine / 1.1, turn, bend], 1)
    return carts + 0.02 * change


class Player:
    """The data of the run: plays episodes by a policy as it is at that time."""

    def __init__(self, policy: nn.Module, episodes: int) -> None:
        self.policy, self.episodes = policy, episodes
        self.played = 0

    def __iter__(self) -> Iterator[Episodes]:
        while True:
            yield self.play()

    @torch.no_grad()
    def play(self) -> Episodes:
        """Play until all poles have fallen, or for MOST steps."""
        carts = torch.rand(self.episodes, 4) / 10 - 0.05
        alive = torch.ones(self.episodes)
        steps: list[tuple[Tensor, Tensor, Tensor]] = []
        while len(steps) < MOST and alive.any():
            actions = Bernoulli(logits=self.policy(carts).squeeze(1)).sample()
            steps.append((carts, actions, alive))
            carts = push(carts, actions)
            stands = (carts[:, 0].abs() < 2.4) & (carts[:, 2].abs() < math.radians(12))
            alive = alive * stands
        self.played += self.episodes
        return Episodes(*map(torch.stack, zip(*steps, strict=True)))

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint holds; so a resumed run need not play the episodes before again."""
        return {"played": self.played}

    def load_state_dict(self, saved: dict[str, int]) -> None:
        """Go on from there."""
        self.played = saved["played"]


def discounted(rewards: Tensor) -> Tensor:
    """The sum of the rewards from each step on, the later the less."""
    returns, later = torch.empty_like(rewards), torch.zeros(rewards.shape[1])
    for time in reversed(range(len(rewards))):
        returns[time] = later = rewards[time] + DISCOUNT * later
    return returns


def build(policy: nn.Module, solved: float) -> Engine[Episodes, Tensor]:
    """The engine that improves the policy, until its episodes are `solved` steps long."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    update = Update(optimizer)

    def learn(state: State[Episodes, Tensor], episodes: Episodes) -> Tensor:
        observations, actions, alive = episodes
        memory = state.recall(learn, Memory)
        returns = discounted(alive)
        better = (returns - memory.returns[: len(returns), None]) / returns.std()
        choices = Bernoulli(logits=policy(observations).squeeze(2))
        loss: Tensor = -(choices.log_prob(actions) * better * alive).sum() / alive.sum()
        if state.training:
            update(state, loss)

        length = alive.sum(0).mean()
        share = 1.0 if state.iteration == 1 else 0.1
        memory.length += share * (float(length) - memory.length)
        expected = torch.zeros(MOST)
        expected[: len(returns)] = returns.mean(1)
        memory.returns = memory.returns + share * (expected - memory.returns)
        state.metrics.update(length=length, lately=memory.length)
        if memory.length >= solved:
            state.stop("solved")
        return loss.detach()

    return Engine(learn, update, objects={"policy": policy, "optimizer": optimizer})


def main(arguments: Sequence[str] | None = None) -> State[Episodes, Tensor]:
    """Play and learn, or carry on."""
    parser = argparse.ArgumentParser(description="REINFORCE with a baseline.")
    parser.add_argument("--directory", type=Path, default=Path("runs/reinforce"))
    parser.add_argument("--max-epochs", type=int, default=20, help="of 20 batches each")
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--episodes", type=int, default=16, help="of a batch")
    parser.add_argument("--solved", type=float, default=180, help="steps of an episode, to stop at")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    engine = build(policy, options.solved).add(
        Checkpoint(options.directory, resume=True),
        StopOnSignal(),
        ConsoleLines("length", "lately", when=Events.EPOCH_COMPLETED(last=True)),
    )
    player = Player(policy, options.episodes)
    state = engine.run(
        player, max_epochs=options.max_epochs, epoch_length=20, max_batches=options.max_batches
    )
    lately = state.metrics["lately"]
    print(f"{state.stop_reason} after {player.played} episodes: {lately:.0f} steps an episode")
    return state


if __name__ == "__main__":
    main()
