"""skrl: its memory, in a step of your own."""

import torch
from crossing import Trial, adam, exact, network

from camshaft import Engine, Update


@exact(
    "skrl",
    "Models",
    "class Kept(RandomMemory), with state_dict and load_state_dict, among the objects",
)
def test_memory(folder):
    """RandomMemory, which gets a state from a subclass."""
    from skrl.memories.torch import RandomMemory

    class Kept(RandomMemory):
        places = ("memory_index", "env_index", "filled")

        def state_dict(self):
            return {"tensors": self.tensors, **{key: getattr(self, key) for key in self.places}}

        def load_state_dict(self, state):
            for name, each in state["tensors"].items():
                self.tensors[name].copy_(each)
            for key in self.places:
                setattr(self, key, state[key])

    model = network(1)
    update = Update(adam(model))
    memory = Kept(memory_size=5, num_envs=4, device="cpu")
    memory.create_tensor("seen", size=8, dtype=torch.float32)
    memory.create_tensor("reward", size=1, dtype=torch.float32)

    def step(state, batch):
        seen = torch.randn(4, 8)
        memory.add_samples(seen=seen, reward=seen.sum(1, keepdim=True))
        ((seen, reward),) = memory.sample(["seen", "reward"], batch_size=3)
        loss = (model(seen) - reward).square().mean()
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    objects = {"model": model, "optimizer": update.optimizer, "memory": memory}
    return Trial(Engine(step, update, objects=objects), range(11))
