"""torchrl: replay buffers in a step of your own."""

import torch
from crossing import Trial, adam, exact, network

from camshaft import Engine, Update


@exact(
    "torchrl",
    "Models",
    'objects={"model": model, "optimizer": optimizer, "buffer": buffer}',
    note="Put a row into it before the run: a storage that has no names yet cannot load.",
)
def test_buffer(folder):
    """A TensorDictReplayBuffer that the step fills and samples."""
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    model = network(1)
    update = Update(adam(model))
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(20), batch_size=6)
    made = torch.zeros(1, 8)
    buffer.extend(TensorDict({"seen": made, "reward": made.sum(1)}, batch_size=1))

    def step(state, batch):
        seen = torch.randn(4, 8)
        buffer.extend(TensorDict({"seen": seen, "reward": seen.sum(1)}, batch_size=4))
        sample = buffer.sample()
        loss = (model(sample["seen"])[:, 0] - sample["reward"]).square().mean()
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    objects = {"model": model, "optimizer": update.optimizer, "buffer": buffer}
    return Trial(Engine(step, update, objects=objects), range(11))
