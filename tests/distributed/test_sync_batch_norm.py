"""SyncBatchNorm as far as a CPU goes: its names, one rank, and where torch refuses it."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from camshaft import supervised
from camshaft.handlers import Checkpoint


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def converted():
    return nn.SyncBatchNorm.convert_sync_batchnorm(net())


def run(directory, model, epochs):
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss)
    torch.manual_seed(1)
    data = [(torch.randn(6, 4), torch.randn(6, 1)) for _ in range(3)]
    engine.add(Checkpoint(directory, resume=True)).run(data, max_epochs=epochs)
    return model.state_dict()


@pytest.mark.parametrize(("first", "second"), [(net, converted), (converted, net)])
def test_checkpoints_fit_the_model_before_and_after_the_conversion(first, second, tmp_path):
    whole = run(tmp_path / "whole", first(), 2)
    run(tmp_path / "parts", first(), 1)
    parts = run(tmp_path / "parts", second(), 2)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    newest = max((tmp_path / "parts").glob("iteration-*"))
    net().load_state_dict(load_file(newest / "model.safetensors"))


ON_RANKS = """
import gc, pytest, torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from camshaft import ranks, supervised

def engine_of(model):
    return supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss)

with ranks.process_group():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    model = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    data = [(torch.randn(6, 4), torch.randn(6, 3))] * (2 + ranks.rank())
    engine_of(model).evaluate(data)  # sends nothing but the sums, so numbers may differ
    with pytest.raises(ValueError, match="SyncBatchNorm expected input tensor to be on"):
        engine_of(model).run(data[:2], max_epochs=1)
    with pytest.raises(ValueError, match="SyncBatchNorm layers only work with GPU modules"):
        DistributedDataParallel(model)
    gc.collect()
"""


def test_on_ranks_of_a_cpu_it_evaluates_and_torch_refuses_to_train_it(processes):
    processes.run_ranks(2, ON_RANKS)
