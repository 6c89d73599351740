"""Memory that really runs out. The CPU's twin, with a model that raises, is test_split.py."""

import re

import pytest
import torch
from torch import nn

from camshaft import supervised

ROOM = 2 * 2**30


@pytest.fixture
def _little_room():
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(ROOM / torch.cuda.mem_get_info()[1])
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def trained(split):
    torch.manual_seed(0)
    hidden = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(1024, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss, device="cuda", split=split)
    draw = torch.Generator().manual_seed(1)
    batch = (torch.randn(2**17, 1024, generator=draw), torch.randn(2**17, 8, generator=draw))
    state = engine.run([batch] * 2, max_epochs=1)  # 512 MiB a layer at once
    assert state.step == 2
    return [each.detach().cpu() for each in model.parameters()], state.metrics["loss"].cpu()


@pytest.mark.gpu
@pytest.mark.usefixtures("_little_room")
def test_a_batch_that_does_not_fit_is_split_until_it_does(caplog):
    weights, loss = trained("auto")
    found = [int(each) for each in re.findall(r"there are now (\d+) at most", caplog.text)]
    assert found
    expected, expected_loss = trained(found[-1])
    assert torch.equal(loss, expected_loss)
    assert all(torch.equal(a, b) for a, b in zip(weights, expected, strict=True))
