"""Ranks: alone there is one, and nothing is said to anybody."""

import torch

from camshaft import Engine, Events, on_rank, ranks
from camshaft.handlers import ClipGradNorm, Metrics

SCRIPT = """
import sys
import torch, torch.distributed as dist
import ignite.distributed as idist
from camshaft import Engine, EventEnum, Events, Update, on_rank, ranks

idist.initialize("gloo")
rank = dist.get_rank()
assert (ranks.rank(), ranks.world_size()) == (rank, 2)
assert ranks.agreed(float(rank + 5)) == 5.0
assert ranks.any_rank(rank == 1) is True and ranks.any_rank(False) is False
assert ranks.total(rank + 1) == 3
assert ranks.total(torch.tensor([rank, 1.0])).tolist() == [1.0, 2.0]
own = torch.full((2,), float(rank + 5))
ranks.share([own])
assert own.tolist() == [5.0, 5.0]
assert ranks.gathered({"rank": rank}) == [{"rank": 0}, {"rank": 1}]

class Writer:
    def attach(self, engine):
        engine.on(Events.STARTED)(lambda state: print(f"rank {rank} writes"))

Engine(lambda state, batch: None, on_rank(1, Writer())).run([1], max_epochs=1)

# Uneven token counts on two ranks: the gradient is that of all tokens in one batch.
tokens = [[3, 1, 7, 2, 5], [4, 4, 1, 6, 2]]
values = [torch.arange(1.0 + i, 1 + i + sum(t), dtype=torch.float64).split(t)
          for i, t in enumerate(tokens)]
weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
holder = torch.nn.Module()
holder.weight = weight
holder.forward = lambda x: (holder.weight * x).sum()
model = torch.nn.parallel.DistributedDataParallel(holder)
update = Update(torch.optim.SGD(model.parameters(), lr=0.0), accumulate=2)

def process(state, batch):
    update(state, model(values[rank][batch]), weight=tokens[rank][batch])

gradients = []
engine = Engine(process)
engine.on(Events.GRADIENTS_READY)(lambda state: gradients.append(weight.grad.item()))
engine.run(range(5), max_epochs=1)
windows = [(0, 2), (2, 4), (4, 5)]
expected = [torch.cat([v for own in values for v in own[a:b]]).mean().item() for a, b in windows]
assert all(abs(x - y) < 1e-6 for x, y in zip(gradients, expected, strict=True)), gradients

# seconds= fires at the same iterations everywhere, whatever each rank's clock says.
import time
calls = []
engine = Engine(lambda state, batch: time.sleep(0.001 * (1 + rank)))
engine.on(Events.ITERATION_COMPLETED(seconds=0.02))(lambda state: calls.append(state.iteration))
engine.run(range(60), max_epochs=1)
assert len(calls) >= 1
assert ranks.gathered(calls)[0] == ranks.gathered(calls)[1], calls

# A handler that one rank alone has cannot wait for the others: its own clock decides.
class Lonely:
    rank = 0
    calls = 0
    def attach(self, engine):
        engine.on(Events.ITERATION_COMPLETED(seconds=0.01))(self.count)
    def count(self, state):
        self.calls += 1

alone, declared = Lonely(), on_rank(1, type("Quiet", (Lonely,), {"rank": None})())
Engine(lambda state, batch: time.sleep(0.002), alone, declared).run(range(40), max_epochs=1)
assert (alone.calls > 0) == (rank == 0)
assert (declared.handler.calls > 0) == (rank == 1)

idist.barrier()
del model, update, process, engine  # gloo's threads abort if DDP outlives the group
idist.finalize()
"""


def test_alone_every_question_has_its_own_answer():
    assert (ranks.rank(), ranks.world_size()) == (0, 1)
    assert not ranks.is_distributed()
    assert ranks.agreed(2.5) == 2.5
    assert ranks.any_rank(True) is True
    assert ranks.total(3) == 3
    assert torch.equal(ranks.total(torch.ones(2)), torch.ones(2))
    assert ranks.gathered("mine") == ["mine"]


def test_a_handler_of_another_rank_is_not_attached():
    engine = Engine(lambda state, batch: None)
    engine.add(on_rank(1, ClipGradNorm(1.0)), on_rank(0, Metrics({})))
    assert list(engine.handlers) == ["on_rank", "Metrics"]
    assert not engine.signal(Events.GRADIENTS_READY).receivers


def test_on_two_ranks_decisions_and_gradients_are_common(processes):
    first, second = processes.run_ranks(2, SCRIPT)
    assert (first.stdout, second.stdout) == ("", "rank 1 writes\n")
