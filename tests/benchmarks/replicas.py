"""What a step costs with `Replicas`, as a ratio to the same step without, where nothing fails.

`python tests/benchmarks/replicas.py` starts a lighthouse and one or two replicas of a thread each;
with `--ranks 2`, of two ranks each, which split the model (HSDP). They take turns with a run
without `Replicas`; a figure is the median of the steps.
"""

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from camshaft import Events, ranks, supervised
from camshaft.handlers import Replicas

WIDTH, BATCH, STEPS = 1024, 256, 40


def seconds_a_step(lighthouse=None, shards=1, *, wait=lambda: None):
    """The median of the steps of a run, without the first ten."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh()))
    )
    if ranks.world_size() > 1:
        for each in (*model[::2], model):
            fully_shard(each)
    engine = supervised(model, torch.optim.AdamW(model.parameters()), nn.functional.mse_loss)
    if lighthouse is not None:
        engine.add(Replicas(lighthouse, shards=shards, timeout=60))
    times = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: times.append(time.perf_counter()))
    batch = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    wait()
    engine.run([batch] * STEPS, max_epochs=1)
    steps = [after - before for before, after in pairwise(times[10:])]
    return statistics.median(steps)


def forked(task, count=1):
    """Run a task on so many ranks, in processes of their own; a function that waits for a number.

    It is that of the slowest rank.
    """
    reading, writing = os.pipe()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    for rank in range(count):
        if os.fork() == 0:
            torch.set_num_threads(1)
            if count > 1:
                os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count))
            with ranks.process_group("gloo"):
                os.write(writing, f"{task()}\n".encode())
            os._exit(0)
    os.close(writing)

    def result():
        with os.fdopen(reading) as file:
            return max(map(float, file))

    return result


def lighthouse():
    """Start one in a process of its own; its address and its process."""
    reading, writing = os.pipe()
    if (process := os.fork()) == 0:
        from torchft.coordination import LighthouseServer

        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        server = LighthouseServer(
            bind="127.0.0.1:0",
            min_replicas=1,
            join_timeout_ms=10_000,
            quorum_tick_ms=10,
            heartbeat_timeout_ms=2000,
        )
        os.write(writing, server.address().rsplit(":", 1)[1].encode())
        time.sleep(3600)
    return f"http://127.0.0.1:{os.read(reading, 100).decode()}", process


def together(address, shards, count, size):
    """The slowest of so many replicas of so many ranks, which begin together."""
    folder = Path(tempfile.mkdtemp())

    def wait():
        (folder / str(os.getpid())).touch()
        while len(list(folder.iterdir())) < count * size:
            time.sleep(0.005)

    tasks = [forked(lambda: seconds_a_step(address, shards, wait=wait), size) for _ in range(count)]
    return max(task() for task in tasks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1)
    given = parser.parse_args()
    cases = {
        "1 replica, 1 shard": (1, 1),
        "1 replica, 8 shards": (8, 1),
        "2 replicas, 2 shards": (2, 2),
    }
    ratios = {name: [] for name in cases}
    for _ in range(given.rounds):
        for name, (shards, count) in cases.items():
            plain = forked(seconds_a_step, given.ranks)()
            address, process = lighthouse()
            ratios[name].append((together(address, shards, count, given.ranks) / plain, plain))
            os.kill(process, 9)
            os.waitpid(process, 0)
    for name, found in ratios.items():
        ratio, plain = (statistics.median(each) for each in zip(*found, strict=True))
        print(f"{name}: {ratio:.2f} of {1000 * plain:.1f} ms", file=sys.stdout)


if __name__ == "__main__":
    main()
