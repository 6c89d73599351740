"""Run on two ranks: the second one is stuck in one of several ways, and the first one waits."""

import os
import signal
import sys
import time
from threading import Lock

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from camshaft import Events, ranks, supervised
from camshaft.engine.ranks.stacks import PLACE
from camshaft.handlers import HangWatchdog


def sleeps():
    time.sleep(30)


def takes_a_lock_twice():
    lock = Lock()
    lock.acquire()
    lock.acquire(timeout=30)


def enters_a_collective_alone():
    dist.barrier()


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


def signals_the_other():
    """Send SIGQUIT to the rank that waits, then wait until the note is written."""
    store = dist.distributed_c10d._get_default_store()
    os.kill(int(store.get("process of rank 0")), signal.SIGQUIT)
    for _ in range(600):
        time.sleep(0.1)
        if store.check([PLACE]) and store.check([f"{PLACE}/{store.get(PLACE).decode()}/note"]):
            return
    raise TimeoutError("no note")


def is_stuck(state):
    if state.iteration == 3 and ranks.rank() == 1:
        globals()[sys.argv[1]]()


with ranks.process_group("gloo", timeout=30 if "signals_the_other" in sys.argv else 4):
    if ranks.rank() == 0:
        store = dist.distributed_c10d._get_default_store()
        store.set("process of rank 0", str(os.getpid()))
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, mse_loss, device="cpu")
    engine.on(Events.ITERATION_STARTED)(is_stuck)
    engine.add(*([HangWatchdog(float(sys.argv[2]))] if len(sys.argv) > 2 else ()))
    engine.run([(torch.ones(2, 2), torch.ones(2, 1))] * 5, max_epochs=1)
