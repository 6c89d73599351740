"""Train on digits with two replicas of two ranks each; one replica is killed, and nothing is lost.

    pip install "camshaft[replicas]"
    python examples/replicas.py

This starts torchft's lighthouse and both replicas, of which one kills one of its ranks. The other
one continues alone; torchrun starts the killed one again, and it joins. Then the same is trained by
one replica that nobody kills, and the weights are compared.

On real machines, the lighthouse is where all replicas reach it, and each replica is a torchrun:

    torchft_lighthouse --bind 10.0.0.1:29510 --min_replicas 1
    torchrun --nproc-per-node=2 --max-restarts=100 examples/replicas.py --lighthouse http://10.0.0.1:29510
"""

import argparse
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from digits import load_data  # type: ignore[import-not-found]  # beside this file
from safetensors.torch import load_file
from torch import nn

from camshaft import Engine, Events, State, ranks, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, JSONLines, Replicas
from camshaft.handlers.checkpoint import checkpoints

LIGHTHOUSE = ("--min_replicas", "1", "--join_timeout_ms", "60000", "--heartbeat_timeout_ms", "1000")
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1")


@ranks.process_group("gloo")
def train(options: argparse.Namespace) -> None:
    """Train as one rank of a replica; without torchrun, as a whole replica."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
    )
    model = ranks.prepare(net, shard=nn.Linear, device="cpu")
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    engine.add(
        Replicas(options.lighthouse, shards=4),
        ClipGradNorm(1.0),
        Checkpoint(options.directory, when=Events.EPOCH_COMPLETED(every=5, last=True), resume=True),
        JSONLines(options.directory / "rows.jsonl", when=Events.ITERATION_COMPLETED),
    )
    kill(engine, options.kill_at)
    train_loader, *_ = load_data(64)
    meet(options.directory, options.replicas)
    engine.run(train_loader, max_epochs=options.max_epochs)


def meet(directory: Path, replicas: int) -> None:
    """Wait until so many replicas are there: the first one would train alone until then."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"started-{os.getppid()}").touch()  # the number of torchrun: one a replica
    while len([*directory.glob("started-*")]) < replicas:
        time.sleep(0.1)


def kill(engine: Engine[Any, Any], iteration: int) -> None:
    """Let the last rank kill itself from this iteration on, the first time that it is started."""

    @engine.on(Events.GRADIENTS_READY)
    def end(state: State[Any, Any]) -> None:
        is_first_time = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
        if 0 < iteration <= state.iteration and is_first_time and ranks.rank() == 1:
            print(f"one rank of a replica is killed in iteration {state.iteration}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def start(*given: object) -> subprocess.Popen[bytes]:
    """Start a replica of two ranks, which torchrun starts again if one of them is lost."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # the bits of sums depend on it
    command = [sys.executable, *LAUNCH, __file__, *map(str, given)]
    return subprocess.Popen(command, env=environment)


def weights(directory: Path) -> dict[str, torch.Tensor]:
    """The weights of the newest checkpoint."""
    return load_file(checkpoints(directory)[-1].export(directory.with_suffix(".safetensors")))


def show(options: argparse.Namespace) -> None:
    """Train by two replicas of which one is killed, then by one, and compare."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
    program = Path(sys.executable).with_name("torchft_lighthouse")
    lighthouse = subprocess.Popen(
        [program, "--bind", place, *LIGHTHOUSE],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        for name, kills in (("two", (0, options.kill_at)), ("one", (0,))):
            directory = options.directory / name
            given: list[object] = ["--lighthouse", f"http://{place}", "--directory", directory]
            given += ["--max-epochs", options.max_epochs, "--replicas", len(kills)]
            for left in directory.glob("started-*"):  # by this script, when it was run before
                left.unlink()
            started = [start(*given, "--kill-at", each) for each in kills]
            codes = [each.wait() for each in started]
            if any(codes):
                sys.exit(f"a replica of the run in {directory} has failed")
    finally:
        lighthouse.kill()
        lighthouse.wait()
    two, one = (weights(options.directory / name) for name in ("two", "one"))
    if not all(torch.equal(two[name], each) for name, each in one.items()):
        sys.exit("the weights differ")
    rows = (options.directory / "two" / "rows.jsonl").read_text().splitlines()
    print(f"{len(rows)} rows, and the weights of the run that nobody has killed")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train as a replica of a lighthouse; without one, show it all."""
    parser = argparse.ArgumentParser(description="Train on digits by replicas.")
    parser.add_argument("--lighthouse", help="its address, such as http://10.0.0.1:29510")
    parser.add_argument("--directory", type=Path, default=Path("runs/replicas"))
    parser.add_argument("--max-epochs", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=1, help="wait until so many have started")
    parser.add_argument("--kill-at", type=int, default=40, help="0 to kill nobody")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    (train if options.lighthouse else show)(options)


if __name__ == "__main__":
    main()
