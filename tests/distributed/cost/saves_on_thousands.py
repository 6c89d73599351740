"""Prints what a rank of thousands does for its first, second and later saves of a sharded model.

One process in torch's fake process group, which has any size and sends nothing. Calls of Python are
counted, since times depend on the machine: `--seconds` prints these.
"""

import argparse
import gc
import json
import sys
from time import process_time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed import fake_pg  # noqa: F401  # makes it known

from camshaft.handlers.checkpoint.save.snapshot import Part, take_run
from camshaft.handlers.checkpoint.sharding import Layout


def sharded(mesh, rows, columns=2):
    """A weight with so many rows, of which this rank holds the first."""
    local = torch.zeros(-(-rows // mesh.size()), columns)
    shape = torch.Size((rows, columns))
    part = DTensor.from_local(
        local, mesh, [Shard(0)], run_check=False, shape=shape, stride=(columns, 1)
    )
    return nn.Parameter(part)


def model_of(mesh, tensors):
    model = nn.Module()
    for number in range(tensors):
        model.register_parameter(f"weight_{number}", sharded(mesh, 8192 * (1 + number % 12)))
    return model


def calls(act):
    """How many functions a call calls, and what it gives."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # a collection calls what it frees
    sys.setprofile(note)
    try:
        result = act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count, result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("size", type=int)
    parser.add_argument("--tensors", type=int, default=24)
    parser.add_argument("--seconds", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("fake", rank=0, world_size=options.size, store=dist.HashStore())
    mesh = init_device_mesh("cpu", (options.size,))
    objects, layout = {"model": model_of(mesh, options.tensors)}, Layout()

    def save():
        taken = take_run(objects, Part({}, {}), layout, {}, {})
        return taken.digest, layout.table, [*taken.tensors["rank-00000"]]

    found = []
    for number in range(4):
        if number == 2:  # one weight comes, as when a part of a model is made anew
            objects["model"].register_parameter("new", sharded(mesh, 8192))
        if number == 3:  # ... and is cut along the other dimension
            whole = nn.Parameter(
                DTensor.from_local(
                    torch.zeros(8192, 1), mesh, [Shard(1)], run_check=False,
                    shape=torch.Size((8192, options.size)), stride=(options.size, 1),
                )
            )  # fmt: skip
            objects["model"].new = whole
        if options.seconds:
            began = process_time()
            save()
            found.append(process_time() - began)
        else:
            count, (digest, table, names) = calls(save)
            grid = table["model"].get("new")
            found.append([count, digest, len(names), grid and [len(each) for each in grid.cuts]])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
