"""accelerate: what its prepare makes of a loader."""

import torch
from accelerate import Accelerator
from crossing import Augmented, digits, exact, trained_on


@exact("accelerate", "Data", "engine.run(accelerator.prepare(loader))")
def test_prepared_loader(folder):
    """A prepared loader, whose samples draw random numbers."""
    torch.manual_seed(0)
    data = Augmented(digits(), lambda features: features + torch.randn(8) / 10)
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True)
    return trained_on(Accelerator(cpu=True).prepare(loader))
