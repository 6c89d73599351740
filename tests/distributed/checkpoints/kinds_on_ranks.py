"""Run on two ranks: kinds of tensors, optimizers and options; each goes on to the same bits.

Each check trains without a break, then again with a break and a resume, and compares states.
"""

import json
import sys

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import mse_loss

from camshaft import Engine, Events, ranks, supervised
from camshaft.handlers import Checkpoint, Export, best, latest
from camshaft.handlers.checkpoint import checkpoints

DATA = [
    (torch.linspace(-1, 1, 16).reshape(4, 4) * (1 + number), torch.ones(4, 4))
    for number in range(3)
]


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Kinds(nn.Module):
    """A bfloat16 weight, one of 8 bits that is not trained, and a buffer of other 8 bits."""

    def __init__(self):
        super().__init__()
        self.low = nn.Parameter(torch.randn(5, 3).bfloat16())
        eighths = torch.randn(6, 4).to(torch.float8_e4m3fn)
        self.eighths = nn.Parameter(eighths, requires_grad=False)
        self.register_buffer("levels", torch.arange(4.0).to(torch.float8_e5m2))

    def forward(self, x):
        return x * self.low.float().sum()


class ChannelsLast(nn.Module):
    """Weights in channels-last order, which FSDP refuses, so under DDP."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 2).to(memory_format=torch.channels_last)

    def forward(self, x):
        seen = self.conv(x.reshape(4, 1, 2, 2).expand(4, 4, 2, 2))
        return x * seen.sum()


def bits(value):
    value = value.detach()
    value = value.to_local() if hasattr(value, "to_local") else value
    return value.contiguous().reshape(-1).view(torch.uint8).tolist()


def told(model, optimizer):
    inner = getattr(model, "module", model)
    found = {name: bits(each) for name, each in inner.state_dict().items()}
    tensors = [each for _, each in sorted_tensors(optimizer.state_dict()["state"])]
    return [found, list(map(bits, tensors))]


def sorted_tensors(value, name=""):
    if isinstance(value, torch.Tensor):
        return [(name, value)]
    if isinstance(value, dict):
        items = value.items()
    else:
        items = enumerate(value) if isinstance(value, list) else ()
    return [pair for key, each in items for pair in sorted_tensors(each, f"{name}.{key}")]


def made(build, shard=True):
    torch.manual_seed(0)
    model = build()
    if shard:
        fully_shard(model)
        return model
    return nn.parallel.DistributedDataParallel(model)


def step_of(model, optimizer):
    """A step that calls its closure several times, as LBFGS needs it."""

    def step(state, batch):
        def closure():
            optimizer.zero_grad()
            loss = mse_loss(model(batch[0]), batch[1])
            loss.backward()
            return loss

        optimizer.step(closure)

    return step


def engine_of(model, optimizer, directory, **options):
    if isinstance(optimizer, torch.optim.LBFGS):
        objects = {"model": model, "optimizer": optimizer}
        engine = Engine(step_of(model, optimizer), objects=objects)
    else:
        engine = supervised(model, optimizer, mse_loss)
    when = Events.ITERATION_COMPLETED(every=2)
    engine.add(Checkpoint(directory, when=when, **({"resume": True} | options)))
    return engine


def goes_on(directory, build, optimize, shard=True):
    """True if this rank's shards are the same bits with and without a resume."""
    ends = []
    for name, stops in (("whole", [5]), ("parts", [4, 5])):
        for stop in stops:
            model = made(build, shard)
            optimizer = optimize(model.parameters())
            engine_of(model, optimizer, f"{directory}/{name}").run(DATA, max_iterations=stop)
        ends.append(told(model, optimizer))
    return ends[0] == ends[1] and any(map(any, ends[0][1]))


def starts_over(directory):
    """A new run where an earlier one left a checkpoint."""
    for _ in range(2):
        model = made(Tied)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        engine = engine_of(model, optimizer, directory, resume=None, start_over=True)
        engine.run(DATA, max_iterations=2)
    return [len(checkpoints(place)) for place in (directory, f"{directory}/earlier.1")]


def replaced(directory):
    """Two saves of one iteration: the second takes the place of the first."""
    model = made(Tied)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss)
    engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.save("by hand"))
    engine.add(Checkpoint(directory, when=Events.EPOCH_COMPLETED))
    engine.run(DATA, max_epochs=1)
    found = [each.manifest for each in checkpoints(directory)]
    return [(each.iteration, each.number, each.reason) for each in found]


def kept(directory):
    """The best two and the newest, with exports of the best beside them."""
    model = made(Tied)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.01), mse_loss)
    each = Events.ITERATION_COMPLETED
    scores = {1: 3.0, 2: 1.0, 3: 2.0, 4: 5.0, 5: 4.0}
    engine.on(each)(lambda state: state.metrics.update(score=scores[state.iteration]))
    claims = best(2, "score", mode="min")
    engine.add(
        Checkpoint(f"{directory}/run", when=each, keep=claims | latest(1)),
        Export(f"{directory}/weights", when=each, keep=best(1, "score", mode="min")),
    )
    engine.run(DATA, max_iterations=5)
    places = (f"{directory}/run", f"{directory}/weights")
    return [[one.manifest.iteration for one in checkpoints(place)] for place in places]


def shares(directory, shard):
    """How many files hold the frozen weights in three checkpoints; a resume is the same run."""

    def build():
        model = nn.Sequential(nn.Linear(4, 600), nn.Linear(600, 600), nn.Linear(600, 4))
        model[:2].requires_grad_(False)
        return model

    is_same = goes_on(directory, build, lambda own: torch.optim.AdamW(own, 0.1), shard)
    model = made(build, shard)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss)
    engine.add(Checkpoint(f"{directory}/all", when=Events.ITERATION_COMPLETED, keep=latest(3)))
    engine.run(DATA, max_epochs=1)
    name = "rank-00000.safetensors" if shard else "model.frozen.safetensors"
    found = [(each.path / name).stat().st_ino for each in checkpoints(f"{directory}/all")]
    return [is_same, len(found), len({*found})]


def passed_over(directory):
    """The newest has a flipped byte in the file of rank 1: all go on from the one before."""
    from_where = []
    for stop in (4, 5):
        model = made(lambda: nn.Sequential(nn.Linear(4, 300), nn.Linear(300, 4)))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        engine = engine_of(model, optimizer, directory)
        engine.on(Events.STARTED)(lambda state: from_where.append(state.iteration))
        engine.run(DATA, max_iterations=stop)
        if stop == 4 and ranks.rank() == 0:
            file = f"{directory}/iteration-0000000004/rank-00001.safetensors"
            with open(file, "r+b") as damaged:
                damaged.seek(-1, 2)
                last = damaged.read(1)
                damaged.seek(-1, 2)
                damaged.write(bytes([last[0] ^ 1]))
        ranks.any_rank(False)
    return from_where


class Counts:
    """A handler that counts in every entry of a tensor."""

    def __init__(self, like):
        self.like = like

    def attach(self, engine):
        engine.on(Events.ITERATION_COMPLETED)(self.note)

    def memory(self, state):
        return state.recall(self, lambda: {"each": torch.zeros_like(self.like)})

    def note(self, state):
        memory = self.memory(state)
        memory["each"] = memory["each"] + 1


def remembers(directory, sharded, with_model):
    """What a handler has in a tensor after a resume, and the error if it keeps a weight itself."""
    for stop in (2, 4):
        model = made(Tied)
        counts = Counts(model.last.bias if sharded else torch.zeros(3))
        engine = Engine(lambda state, batch: None, counts, Checkpoint(directory, resume=True))
        engine.objects["model"] = model if with_model else nn.Linear(1, 1)
        state = engine.run(DATA, max_iterations=stop)
    each = counts.memory(state)["each"]
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: counts.memory(state).update(each=model.last.bias.detach())
    )
    try:
        engine.run(DATA, max_iterations=6)
        said = ""
    except TypeError as error:
        said = str(error)
    is_sharded = isinstance(each, DTensor)
    return [is_sharded, (each.full_tensor() if is_sharded else each).tolist(), said]


def main(base):
    adam = torch.optim.AdamW
    tensors = {
        "tied": (Tied, lambda own: adam(own, 0.1)),
        "kinds": (Kinds, lambda own: adam([each for each in own if each.requires_grad], 0.1)),
        "fused": (Tied, lambda own: adam(own, 0.1, fused=True)),
    }
    lbfgs = torch.optim.LBFGS
    plain = {
        "channels": (ChannelsLast, lambda own: adam(own, 0.1)),
        "lbfgs": (Tied, lambda own: lbfgs(own, 0.1, max_iter=3, history_size=4)),
    }
    found = {name: goes_on(f"{base}/{name}", *each) for name, each in tensors.items()}
    found |= {name: goes_on(f"{base}/{name}", *each, shard=False) for name, each in plain.items()}
    found["remembers"] = [
        remembers(f"{base}/{sharded}-{with_model}", sharded, with_model)
        for sharded, with_model in ((True, False), (False, True), (True, True))
    ]
    found["start over"] = starts_over(f"{base}/over")
    found["replaced"] = replaced(f"{base}/replaced")
    found["kept"] = kept(f"{base}/kept")
    found["shares"] = [shares(f"{base}/{shard}", shard) for shard in (True, False)]
    found["passed over"] = passed_over(f"{base}/damaged")
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with ranks.process_group():
        main(sys.argv[1])
