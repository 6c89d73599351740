"""The energy that a real device counts."""

import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers import SystemUse


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:SystemUse leaves out the energy of processors")
def test_a_device_counts_the_joules_of_the_work_that_it_does():
    pytest.importorskip("pynvml")

    def work(state, batch):
        matrix = torch.ones(4096, 4096, device="cuda")
        for _ in range(batch):
            matrix = (matrix @ matrix).clamp(0, 1)
        torch.cuda.synchronize()

    engine = Engine(work, SystemUse(when=Events.ITERATION_COMPLETED, energy=True))
    taken = []
    engine.on(Events.ITERATION_COMPLETED)(lambda s: taken.append(s.metrics["energy/gpu"]))
    torch.cuda.init()
    engine.run([1, 2000, 2000], max_epochs=1)
    first, second = taken[1] - taken[0], taken[2] - taken[1]
    assert 1 < first < 10_000
    assert second == pytest.approx(first, rel=0.5)
