"""pytorch-metric-learning: samplers of so many samples of a class."""

import torch
from crossing import digits, exact, trained_on
from pytorch_metric_learning.samplers import MPerClassSampler


@exact("pytorch-metric-learning", "Data", "DataLoader(data, sampler=MPerClassSampler(labels, m=2))")
def test_per_class(folder):
    """MPerClassSampler, which draws from NumPy's generator."""
    data = digits()
    sampler = MPerClassSampler(data.tensors[1], m=2, batch_size=4, length_before_new_iter=44)
    return trained_on(torch.utils.data.DataLoader(data, 4, sampler=sampler))
