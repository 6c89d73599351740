"""stable-baselines3: its replay buffer, in a step of your own."""

import numpy as np
from crossing import Trial, adam, exact, network

from camshaft import Engine, Update


@exact(
    "stable_baselines3",
    "Models",
    "class Kept(ReplayBuffer), with state_dict and load_state_dict, among the objects",
)
def test_replay_buffer(folder):
    """ReplayBuffer, which gets a state from a subclass of six lines."""
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import ReplayBuffer

    class Kept(ReplayBuffer):
        def state_dict(self):
            kinds = (np.ndarray, int, bool)
            return {key: v for key, v in vars(self).items() if isinstance(v, kinds)}

        def load_state_dict(self, state):
            vars(self).update(state)

    model = network(1)
    update = Update(adam(model))
    space = Box(-9, 9, (8,))
    buffer = Kept(20, space, space, device="cpu", handle_timeout_termination=False)

    def step(state, batch):
        for seen in np.random.normal(size=(4, 1, 8)):
            buffer.add(seen, seen + 1, seen, seen.sum(1), np.zeros(1), [{}])
        sample = buffer.sample(6)
        loss = (model(sample.observations) - sample.rewards).square().mean()
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    objects = {"model": model, "optimizer": update.optimizer, "buffer": buffer}
    return Trial(Engine(step, update, objects=objects), range(11))
