"""What the guide of post-training says of servers that a step asks."""

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, Update
from camshaft.handlers import Checkpoint

PROMPTS = torch.randn(64, 4, generator=torch.Generator().manual_seed(1)).split(8)


class Server:
    """Stands for an inference server: it answers by the weights that it was sent last."""

    def __init__(self):
        self.asked = {}

    def load(self, weights):
        self.weights = weights

    def complete(self, prompts, seed):
        self.asked[seed] = self.weights["weight"]
        generator = torch.Generator().manual_seed(seed)
        odds = (prompts @ self.weights["weight"].T + self.weights["bias"]).softmax(1)
        return torch.multinomial(odds, 1, generator=generator)


def run(directory, saves, leave_at=None):
    torch.manual_seed(0)
    server, writer, judge = Server(), nn.Linear(4, 5), nn.Linear(5, 1).requires_grad_(False)
    optimizer = torch.optim.Adam(writer.parameters(), 0.05)
    update = Update(optimizer)

    def step(state, prompts):
        if state.iteration == leave_at:
            raise RuntimeError("as by a kill")
        answers = server.complete(prompts, seed=state.iteration)
        rewards = judge(nn.functional.one_hot(answers[:, 0], 5).float())
        gained = writer(prompts).log_softmax(1).gather(1, answers) * (rewards - rewards.mean())
        update(state, -gained.mean())

    engine = Engine(step, update, objects={"writer": writer, "optimizer": optimizer})

    @engine.on(Events.STARTED | Events.STEP_COMPLETED(every=4))
    def send(state):
        server.load({name: each.clone() for name, each in writer.state_dict().items()})

    engine.add(Checkpoint(directory, when=Events.STEP_COMPLETED(every=saves), resume=True))
    engine.run(PROMPTS, max_epochs=2)
    return list(writer.parameters()), server.asked[8]


@pytest.mark.parametrize(("saves", "is_same"), [(4, True), (6, False)])
def test_a_run_that_asks_a_server_is_the_same_if_it_sends_weights_where_it_saves(
    tmp_path, saves, is_same
):
    whole, asked = run(tmp_path / "whole", saves)
    with pytest.raises(RuntimeError, match="as by a kill"):
        run(tmp_path / "parts", saves, leave_at=7)
    resumed, asked_again = run(tmp_path / "parts", saves)
    assert torch.equal(asked_again, asked) == is_same
    assert not is_same or all(map(torch.equal, resumed, whole))
