"""Copies on a stream of their own: the same batches, earlier; their memory is used again in time.

Which batches go so is decided without a device: tests/engine/supervised/test_transfer.py.
"""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Transfer, supervised

pytestmark = pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")


def busy(product, times):
    for _ in range(times):
        product = product @ product
        product = product / product.norm()
    return product


@pytest.mark.gpu
def test_memory_is_not_used_again_while_a_step_computes_with_it():
    transfer, product = Transfer("cuda", least=0), torch.randn(2048, 2048, device="cuda")
    equal = []
    for number in range(100):
        batch = torch.full((2**20,), float(number)).pin_memory()  # and its memory is free at once
        product = busy(product, 3)  # so that the copy is far ahead
        (there,) = transfer((batch,))
        equal.append((there == number).all())
        del there, batch
    assert all(torch.stack(equal).tolist())


@pytest.mark.gpu
def test_a_copy_ends_while_the_step_before_is_computed_and_the_host_waits_for_neither():
    transfer, product = Transfer("cuda"), torch.randn(8192, 8192, device="cuda")
    batch = (torch.ones(2**22).pin_memory(),)
    transfer(batch)
    product = busy(product, 2)
    torch.cuda.synchronize()
    product = busy(product, 50)
    computed = torch.cuda.current_stream().record_event()
    torch.cuda.set_sync_debug_mode("error")
    try:
        (there,) = transfer(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    transfer.stream.synchronize()
    assert not computed.query()
    assert there.sum().item() == 2**22


@pytest.mark.gpu
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_pins_memory_feeds_the_stream_and_the_weights_are_the_same(workers):
    def trained(pin_memory):
        torch.manual_seed(0)
        model = torch.nn.Linear(1024, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = supervised(model, optimizer, torch.nn.functional.mse_loss, device="cuda")
        data = TensorDataset(torch.randn(2048, 1024), torch.randn(2048, 8))
        loader = DataLoader(data, 512, shuffle=True, pin_memory=pin_memory, num_workers=workers)
        engine.run(loader, max_epochs=3)
        has_stream = "stream" in vars(engine.process.__self__.move)
        return has_stream, model.weight.detach().cpu()

    (has_stream, weight), (has_none, expected) = trained(True), trained(False)
    assert (has_stream, has_none) == (True, False)
    assert torch.equal(weight, expected)
