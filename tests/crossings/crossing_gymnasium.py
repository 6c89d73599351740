"""gymnasium: environments in a step of your own."""

import torch
from crossing import Trial, adam, exact
from torch import nn

from camshaft import Engine, Update


@exact(
    "gymnasium",
    "Models",
    "state.recall(step, Replayed), which saves the seed and the actions of an episode",
    note="A resume repeats the steps of one episode.",
)
def test_replayed(folder):
    """CartPole that is saved as the seed and the actions of its episode."""
    import gymnasium

    class Replayed:
        def __init__(self):
            self.env, self.seed = gymnasium.make("CartPole-v1"), 0
            self.begin()

        def begin(self):
            self.actions = []
            self.seen, _ = self.env.reset(seed=self.seed)

        def step(self, action):
            self.actions.append(action)
            self.seen, reward, terminated, truncated, _ = self.env.step(action)
            if ended := terminated or truncated:
                self.seed += 1
                self.begin()
            return reward, ended

        def state_dict(self):
            return {"seed": self.seed, "actions": self.actions}

        def load_state_dict(self, saved):
            self.seed = saved["seed"]
            self.begin()
            for action in saved["actions"]:
                self.step(action)

    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    update = Update(adam(policy))

    def step(state, number):
        env, chances, rewards = state.recall(step, Replayed), [], []
        for _ in range(12):
            choice = torch.distributions.Categorical(logits=policy(torch.tensor(env.seen)))
            action = choice.sample()
            chances.append(choice.log_prob(action))
            reward, ended = env.step(int(action))
            rewards.append(reward - 5 * ended)
        loss = -(torch.stack(chances) * torch.tensor(rewards)).mean()
        update(state, loss)
        state.metrics["reward"] = sum(rewards)

    engine = Engine(step, update, objects={"model": policy, "optimizer": update.optimizer})
    return Trial(engine, range(11))
