"""Run on two ranks: what one of them decides or finds ends both at one iteration."""

import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from camshaft import Engine, Events, Stage, Update, ranks, seed_everything
from camshaft.handlers import Checkpoint, NonFiniteGuard, StopOnSignal
from camshaft.handlers.checkpoint import checkpoints

directory = Path(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
EACH = Events.ITERATION_COMPLETED


def preempted(name, at, **options):
    """Rank 1 alone gets a signal after an iteration; the iterations of the stop, of both ranks."""

    def step(state, batch):
        time.sleep(0.005)
        ranks.count(True)  # as gradients do: nobody is an iteration ahead

    engine = Engine(step, StopOnSignal(exit=False, **options), Checkpoint(directory / name))
    if rank == 1:
        kill = engine.on(EACH(at=at), stage=Stage.REPORT)
        kill(lambda state: signal.raise_signal(signal.SIGTERM))
    state = engine.run(range(10_000), max_epochs=1)
    assert state.stop_reason == "SIGTERM"
    ranks.gathered(None)  # rank 0 has written it
    (saved,) = checkpoints(directory / name)
    assert saved.manifest.iteration == state.iteration
    return ranks.gathered(state.iteration)


assert preempted("every", 23, every=10) == [30, 30]
assert preempted("at once", 8, every=1) == [9, 9]
first, second = preempted("second", 300)
assert first == second
assert 300 < first <= 300 + 2 * 200 + 1  # two seconds at most

# At the end of an epoch it is enough that one rank asks for a stop.
for ask, is_whole in (("stop", True), ("interrupt", False)):
    engine = Engine(lambda state, batch: None, Checkpoint(directory / ask))
    if rank == 1:
        asks = engine.on(Events.EPOCH_COMPLETED(at=2))
        asks(lambda state, ask=ask: getattr(state, ask)("enough"))
    completed = []
    engine.on(Events.COMPLETED)(completed.append)
    state = engine.run([1, 2, 3], max_epochs=4)
    assert (state.epoch, state.stop_reason, bool(completed)) == (2, "enough", is_whole)


# A guard that looks late names the first bad step, which only rank 1 has seen.
def spoilt(name, **options):
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.ones(()))
    update = Update(torch.optim.SGD([weight], lr=0.125))

    def step(state, batch):
        state.metrics["loss"] = (weight * (float("nan") if rank and batch == 6 else batch)).detach()
        update(state, weight * (float("nan") if rank and batch == 6 else 1.0))

    objects = {"optimizer": update.optimizer}
    engine = Engine(step, update, NonFiniteGuard("raise", **options), objects=objects)
    engine.add(Checkpoint(directory / name, when=EACH(every=4)))
    try:
        engine.run(range(40), max_epochs=1)
    except FloatingPointError as error:
        ranks.gathered(None)  # rank 0 has written its last checkpoint
        saved = [each.manifest.iteration for each in checkpoints(directory / name)]
        return str(error), saved
    raise AssertionError("no error")


said, saved = spoilt("late", late=True, every=100)
whose = "(the loss of rank 1); the run is in iteration"
assert f"step 7 were not finite on at least one rank {whose} 8" in said, said
assert saved == [4]
said, saved = spoilt("in time")
assert f"step 7 are not finite {whose} 7" in said, said
assert saved == [4]

# What evaluations draw on a rank is what `seed_everything(per_rank=True)` leads to.
seed_everything(5, per_rank=True)
expected = torch.rand(2).tolist()
drawn = Engine(lambda state, batch: torch.rand(2).tolist()).evaluate([0], seed=5).output
assert drawn == expected
assert len({tuple(each) for each in ranks.gathered(drawn)}) == 2
dist.barrier()
dist.destroy_process_group()
