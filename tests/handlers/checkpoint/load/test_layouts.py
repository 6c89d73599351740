"""A resume lays moments in memory as their weights lie."""

import torch
from torch import nn
from torch.optim import SGD, AdamW

from camshaft import supervised
from camshaft.handlers import Checkpoint


class Product(nn.Module):
    """A model whose gradient is its input, to the last bit, however its weight lies."""

    def __init__(self, layout):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 3, 4, 4).to(memory_format=layout))

    def forward(self, inputs):
        return (self.weight * inputs[0]).sum()


def train(layout, make, epochs, directory=None):
    """The weight and the state of its optimizer after some epochs of two steps."""
    model = Product(layout)
    optimizer = make(model.parameters())
    engine = supervised(model, optimizer, lambda prediction, _: prediction)
    if directory is not None:
        engine.add(Checkpoint(directory, resume=True))
    data = torch.randn(2, 1, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    engine.run([(inputs, torch.zeros(1)) for inputs in data], max_epochs=epochs)
    return model.weight.detach(), optimizer.state[model.weight]


def test_a_model_that_became_channels_last_resumes_with_the_moments_of_its_weights(tmp_path):
    makes = {
        "AdamW": lambda parameters: AdamW(parameters, 0.1, fused=True),
        "SGD": lambda parameters: SGD(parameters, 0.1, momentum=0.9, fused=True),
    }
    for name, make in makes.items():
        right, state = train(torch.contiguous_format, make, 4)
        train(torch.contiguous_format, make, 2, tmp_path / name)
        weight, resumed = train(torch.channels_last, make, 4, tmp_path / name)
        assert torch.equal(weight, right), name
        assert all(torch.equal(torch.as_tensor(v), resumed[key]) for key, v in state.items())
        assert weight.stride() != right.stride()
