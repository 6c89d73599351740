"""Run on two ranks: what each of them has otherwise goes on on each; weights may not come apart."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler

from camshaft import Engine, Events, Update, ranks, supervised
from camshaft.handlers import EMA, Checkpoint

EACH = Events.ITERATION_COMPLETED
DATA = [(torch.linspace(-1, 1, 4) * (number + 1) / 8, torch.ones(2)) for number in range(8)]


class Divided(torch.optim.Optimizer):
    """Each rank keeps the momentum of some weights, steps these, and sends them to the others."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self):
        for number, each in enumerate(self.param_groups[0]["params"]):
            owner = number % dist.get_world_size()
            if owner == dist.get_rank():
                momentum = self.state[each].setdefault("momentum", torch.zeros_like(each))
                each.sub_(momentum.mul_(0.9).add_(each.grad), alpha=self.param_groups[0]["lr"])
            dist.broadcast(each, owner)


class Seen:
    """The samples that this rank has had, as in a replay buffer."""

    def __init__(self):
        self.samples = []

    def state_dict(self):
        return {"samples": self.samples}

    def load_state_dict(self, state):
        self.samples = [*state["samples"]]


class Turned(Sampler):
    """This rank's half of the samples, in the order of the epoch before, turned by one."""

    def __init__(self):
        self.order = [*range(dist.get_rank(), len(DATA), 2)]

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        self.order = self.order[1:] + self.order[:1]
        return iter(self.order)

    def state_dict(self):
        return {"order": self.order}

    def load_state_dict(self, state):
        self.order = [*state["order"]]


def divided(directory, iterations):
    """Train with all of these; what this rank has in the end."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
    optimizer, seen, sampler = Divided(model.parameters()), Seen(), Turned()
    update = Update(optimizer, model=model)

    def step(state, batch):
        seen.samples.append(batch[0][0, 0].item())
        update(state, mse_loss(model(batch[0]), batch[1]))

    objects = {"model": model, "optimizer": optimizer, "seen": seen, "sampler": sampler}
    engine = Engine(step, Checkpoint(directory, when=EACH(every=3), resume=True), objects=objects)
    engine.run(DataLoader(DATA, sampler=sampler), max_epochs=3, max_iterations=iterations)
    kept = {n: each["momentum"].tolist() for n, each in optimizer.state_dict()["state"].items()}
    return [each.tolist() for each in model.parameters()], kept, seen.samples, sampler.order


def averaged(directory, when):
    """Ranks that train apart and average their weights in iterations 1, 2, 4 and 8."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(state, batch):
        optimizer.zero_grad()
        mse_loss(model(batch[0] * (dist.get_rank() + 1)), batch[1]).backward()
        optimizer.step()
        state.fire(Events.STEP_COMPLETED)
        if state.iteration in (1, 2, 4, 8):
            for each in model.parameters():
                dist.all_reduce(each.data)
                each.data /= 2

    objects = {"model": model, "optimizer": optimizer}
    try:
        Engine(step, Checkpoint(directory, when=when), objects=objects).run(DATA, max_epochs=1)
    except ValueError as error:
        return str(error)


class Fading:
    """The state of a communication hook: gradients count half from the sixth call on."""

    def __init__(self):
        self.calls = 0

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]

    def average(self, bucket):
        self.calls += 1
        part = bucket.buffer() / (2 if self.calls < 6 else 4)
        return dist.all_reduce(part, async_op=True).get_future().then(lambda it: it.value()[0])


def hooked(directory, iterations, is_named):
    """Train with a hook that keeps a state; the weights in the end."""
    torch.manual_seed(0)
    model, fading = DistributedDataParallel(nn.Linear(4, 2)), Fading()
    model.register_comm_hook(fading, Fading.average)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.01), mse_loss)
    if is_named:
        engine.objects["fading"] = fading
    engine.add(Checkpoint(directory, when=EACH(every=4), resume=True))
    engine.run(DATA, max_iterations=iterations)
    return [each.tolist() for each in model.parameters()]


def beside_shards(directory, iterations):
    """Train a sharded model; rank 1 remembers every second sample alone."""
    torch.manual_seed(0)
    model, seen = fully_shard(nn.Linear(4, 2)), Seen()
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.01), mse_loss)
    engine.objects["seen"] = seen
    every = EACH(every=dist.get_rank() + 1)
    engine.on(every)(lambda state: seen.samples.append(state.batch[0].sum().item()))
    engine.add(Checkpoint(directory, when=EACH(every=3), resume=True))
    engine.run(DATA, max_iterations=iterations)
    return seen.samples, [each.to_local().tolist() for each in model.parameters()]


def grown(directory):
    """A group is added to the optimizer of a sharded model that has an average."""
    model = fully_shard(nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2)))
    optimizer = torch.optim.SGD(model[0].parameters(), 0.1)
    engine = supervised(model, optimizer, mse_loss)
    engine.add(EMA(), Checkpoint(directory, when=EACH))
    engine.on(EACH(at=2))(lambda _: optimizer.add_param_group({"params": [*model[1].parameters()]}))
    engine.run(DATA, max_iterations=3)


with ranks.process_group("gloo"):
    base = sys.argv[1]
    whole = divided(f"{base}/whole", 12)
    divided(f"{base}/parts", 7)
    found = {
        "goes on": divided(f"{base}/parts", 12) == whole,
        "apart": ranks.gathered(whole[1:]),
        "averaged": averaged(f"{base}/averaged", EACH(at=(2, 4, 8))),
        "between": averaged(f"{base}/between", EACH(at=(2, 3))),
    }
    grown(f"{base}/grown")
    whole = hooked(f"{base}/hooked", 8, is_named=True)
    hooked(f"{base}/named", 5, is_named=True)
    found["hooked"] = hooked(f"{base}/named", 8, is_named=True) == whole
    hooked(f"{base}/unnamed", 1, is_named=False)
    whole = beside_shards(f"{base}/shards", 8)
    beside_shards(f"{base}/pieces", 5)
    found["beside shards"] = beside_shards(f"{base}/pieces", 8) == whole
    print(json.dumps(found))
