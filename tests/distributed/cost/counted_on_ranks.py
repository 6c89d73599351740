"""Run on ranks: the numbers and bytes of all messages of a run with every handler on."""

import json
import sys
from pathlib import Path

import torch.distributed as dist
from everything import counted, everything

directory = Path(sys.argv[1])
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
engine, data = everything(directory, size)
messages = counted(engine, data, rank)
found = {by: messages.of(by) for by in ("camshaft", "torchmetrics", "torch")}
(directory / f"{size}-{rank}.json").write_text(json.dumps(found))
print(json.dumps(messages.listed(), indent=1))  # for people, if a count has changed
dist.barrier()
del engine
dist.destroy_process_group()
