"""Take a step of `examples/step_memory.py` with real tensors, and print its peak of bytes.

python counted_step.py SCRIPT RANKS BATCH_SIZE RECOMPUTE
"""

import runpy
import sys
from argparse import Namespace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile

path, *numbers = sys.argv[1:]
ranks, batch_size, recompute = map(int, numbers)
script = runpy.run_path(path)
mesh = None
if ranks > 1:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))

model = script["prepared"](Namespace(layers=2, width=128, recompute=recompute), mesh)
optimizer = torch.optim.AdamW(model.parameters())
batch = script["build_batch"](batch_size, 64)


def step():
    """The same as in the example."""
    script["loss_of"](model, batch).backward()
    optimizer.step()
    optimizer.zero_grad()


def size(tensor):
    """The bytes of it on this rank."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).nbytes


step()
states = [each for state in optimizer.state.values() for each in state.values()]
now = peak = sum(map(size, [*model.parameters(), *batch, *states]))
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    step()
events = [each for each in profiler.profiler.kineto_results.events() if each.name() == "[memory]"]
for each in sorted(events, key=lambda event: event.start_ns()):
    now += each.nbytes()
    peak = max(peak, now)
print(peak)
if ranks > 1:
    dist.destroy_process_group()
