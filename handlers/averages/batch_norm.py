"""BatchNorm's statistics for averaged weights, measured over the data of all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Module
from torch.optim.swa_utils import update_bn

from ...engine import ranks
from ...engine.modules import untouched


def measure_batch_norms(model: Module, data: Iterable[Any]) -> None:
    """Measure the running statistics of a model anew by a pass over the data of all ranks.

    Each becomes the mean over all batches of all ranks. The mode of each module, and the random
    number generators, are left as they were.
    """
    norms: list[Any] = [each for each in model.modules() if _is_tracking(each)]
    if not norms:
        return
    device = norms[0].running_mean.device
    with untouched({"model": model}, data):
        update_bn(data, model, device)
    _take_means(norms)


def _is_tracking(module: Any) -> bool:
    is_norm = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)  # as `update_bn` asks
    return is_norm and module.running_mean is not None


@torch.no_grad()
def _take_means(norms: list[Any]) -> None:
    """Take the means over ranks, in one message; a rank weighs as much as it has seen batches."""
    statistics = [each for norm in norms for each in (norm.running_mean, norm.running_var)]
    own = norms[0].num_batches_tracked.double()
    flat = torch.cat([each.reshape(-1).double() for each in statistics])
    sums = torch.as_tensor(ranks.total(torch.cat([flat * own, own[None]])))
    means = sums[:-1] / sums[-1]
    for each, part in zip(statistics, means.split([s.numel() for s in statistics]), strict=True):
        each.copy_(part.view_as(each))
