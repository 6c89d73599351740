"""Run on any number of ranks: trains a model on a mesh, saves, resumes, and tells its state.

Arguments: the directory, the kind of mesh, after how many iterations to stop, and further words.
"""

import json
import os
import signal
import sys

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import mse_loss

from camshaft import Events, ranks, supervised
from camshaft.handlers import EMA, Checkpoint


class Remembered:
    """A memory with a weight in it, twice."""

    def __init__(self, weight):
        self.weight = self.again = weight

    def state_dict(self):
        return {"weights": {"odd.weight": self.weight}, "again": self.again}

    def load_state_dict(self, saved):
        self.weight, self.again = saved["weights"]["odd.weight"], saved["again"]


class Remembers:
    """Keeps a multiple of a weight, in the shards of the weight."""

    def __init__(self, weight):
        self.weight = weight

    def attach(self, engine):
        engine.on(Events.ITERATION_COMPLETED)(self.note)

    def memory(self, state):
        return state.recall(self, lambda: Remembered(self.weight.detach() * 0))

    def note(self, state):
        memory = self.memory(state)
        memory.weight = memory.again = memory.weight + self.weight.detach()


CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir"}

torch.set_default_dtype(torch.float64)


class Model(nn.Module):
    """Layers that do not divide evenly, one with a single row, a tied weight, numbers, buffers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 4)
        self.odd, self.row = nn.Linear(4, 7), nn.Linear(7, 1)
        self.norm = nn.LayerNorm(4)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("low", torch.full((3, 2), 0.1).to(torch.bfloat16))

    def forward(self, x):
        self.seen += 1
        x = self.norm(self.second(torch.tanh(self.first(x))) + x)
        return self.row(torch.tanh(self.odd(x)))


def on_mesh(model, kind):
    count = ranks.world_size()
    if kind == "plain":
        return model
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp":
        mesh = init_device_mesh("cpu", (count,))
    elif kind == "hsdp":
        mesh = init_device_mesh("cpu", (2, count // 2), mesh_dim_names=("copies", "shards"))
    else:
        both = init_device_mesh("cpu", (count // 2, 2), mesh_dim_names=("shards", "parts"))
        plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
        if kind == "odd":  # 7 rows and 7 columns, in 2 parts that fully_shard splits again
            plan["odd"] = ColwiseParallel(output_layouts=Replicate())
            plan["row"] = RowwiseParallel(input_layouts=Replicate())
        parallelize_module(model, both["parts"], plan)
        mesh = both["shards"]
        ranks.data_parallel(mesh)
    fully_shard(model.odd, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def whole(value):
    value = value.detach()
    value = value.full_tensor() if hasattr(value, "full_tensor") else value
    return value.double().reshape(-1).tolist()


def told(model, optimizer, average, remembered):
    state = {name: whole(each) for name, each in model.state_dict().items()}
    kept = optimizer.state_dict()["state"]
    state |= {f"{index}.{key}": whole(each) for index in kept for key, each in kept[index].items()}
    state |= {"remembered": whole(remembered.weight), "again": whole(remembered.again)}
    assert type(remembered.weight) is type(model.odd.weight.detach())
    return state | {f"ema.{name}": whole(each) for name, each in average.state_dict().items()}


def kill_at(directory, words):
    """End this rank, as by `kill -9`, before so many of its operations on files of one save."""
    for word in words:
        _, _, place = word.partition("kill=")
        if place and place.split(":")[0] == str(ranks.rank()):
            left = [int(place.split(":")[1])]

            def hear(event, arguments, left=left):
                is_file = event == "open" and isinstance(arguments[0], str) and arguments[2] & 3
                if (is_file and directory in arguments[0]) or event in CHANGES:
                    left[0] -= 1
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(hear)


def main(directory, kind, stop_at, *words):
    torch.manual_seed(0)
    model = Model()
    model.first.requires_grad_("frozen" not in words)
    model = on_mesh(model, kind)
    inner = getattr(model, "module", model)
    remembers = Remembers(inner.odd.weight)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.05, amsgrad=True, foreach="foreach" in words or None
    )
    generator = torch.Generator().manual_seed(1)
    data = [
        (torch.randn(4, 4, generator=generator), torch.randn(4, 1, generator=generator))
        for _ in range(3)
    ]
    engine = supervised(model, optimizer, mse_loss)
    engine.add(
        EMA(decay=0.5),
        remembers,
        Checkpoint(directory, when=Events.EPOCH_COMPLETED, resume=True),
    )
    loaded = []
    engine.on(Events.STARTED)(
        lambda state: loaded.append(
            told(inner, optimizer, engine.objects["ema"], remembers.memory(state))
        )
    )
    engine.on(Events.ITERATION_COMPLETED(at=6))(lambda state: kill_at(directory, words))
    state = engine.run(data, max_iterations=int(stop_at))
    end = told(inner, optimizer, engine.objects["ema"], remembers.memory(state))
    if ranks.rank() == 0:
        print(json.dumps({"from": state.iteration, "loaded": loaded[0], "end": end}), flush=True)


if __name__ == "__main__":
    with ranks.process_group():
        try:
            main(*sys.argv[1:])
        except Exception as error:  # another rank was killed
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
