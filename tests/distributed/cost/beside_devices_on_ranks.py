"""Beside a group for devices only, as nccl's is, small messages take a way over the CPU."""

from datetime import timedelta

import torch
import torch.distributed as dist

from camshaft import ranks
from camshaft.engine.ranks.groups import on_cpu

dist.init_process_group("cuda:gloo", timeout=timedelta(seconds=77))
rank, size = dist.get_rank(), dist.get_world_size()
assert ranks.count(True) == size
assert ranks.agreed(float(rank)) == 0.0
assert ranks.total(torch.ones(1)).item() == size
side = on_cpu()
assert side is not dist.group.WORLD
assert on_cpu() is side
assert side._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=77)
part = dist.new_group([0, 2]) if rank % 2 == 0 else dist.new_group([0, 2]) and None
if part is not None:  # the other ranks take no part in making its side group
    assert ranks.total(rank, group=part) == 2
    assert on_cpu(part) is on_cpu(part) is not side
ranks.gathered(None)
del part, side
dist.destroy_process_group()
