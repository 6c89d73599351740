"""torchsampler: classes that come equally often."""

import torch
from crossing import digits, exact, trained_on


@exact("torchsampler", "Data", "DataLoader(data, sampler=ImbalancedDatasetSampler(data))")
def test_imbalanced(folder):
    """ImbalancedDatasetSampler, which draws with weights."""
    # Not at the top: its import fails in an interpreter that has imported importlib_metadata 9.
    from torchsampler import ImbalancedDatasetSampler

    data = digits()
    torch.manual_seed(0)
    sampler = ImbalancedDatasetSampler(data, labels=data.tensors[1].tolist())
    return trained_on(torch.utils.data.DataLoader(data, 4, sampler=sampler))
