"""Run on three or four ranks: a model made anew adds up gradients in the buckets of before."""

import logging
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from camshaft import Engine, Events, ranks, supervised
from camshaft.handlers import Checkpoint

PLACE = Path(sys.argv[1])


class Net(nn.Module):
    """Its layers are used in another order than they are made in, and are of two types."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(9, 9) for _ in range(6))
        self.layers[1].double()
        self.layers[4].double()
        self.layers[5].requires_grad_(False)
        self.unlike = nn.Parameter(torch.ones(9))

    def forward(self, x):
        for number in (3, 0, 4, 5, 2, 1):
            layer = self.layers[number]
            x = layer(x.to(layer.weight.dtype)).tanh() * self.unlike
        return x.float()


def parallel(seed=0, **options):
    torch.manual_seed(seed)
    return DistributedDataParallel(Net(), **{"bucket_cap_mb": 0.0006} | options)


def data():
    generator = torch.Generator().manual_seed(ranks.rank())
    return [tuple(torch.randn(2, 3, 9, generator=generator)) for _ in range(6)]


def of_the_library(**options):
    model = parallel(**options)
    optimizer = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
    return supervised(model, optimizer, nn.functional.mse_loss, accumulate=2)


def of_ones_own(name="both", **options):
    """Two models of which one is inside another module; the other's weights have gradients."""
    first, second = parallel(1, **options), parallel(2, **options)
    optimizers = [torch.optim.SGD(each.parameters(), 0.3) for each in (first, second)]

    def step(state, batch):
        for model, optimizer in zip((first, second), optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
            optimizer.step()
        state.fire(Events.STEP_COMPLETED)

    objects = {name: nn.ModuleList([first, second]), "a": optimizers[0], "b": optimizers[1]}
    return Engine(step, objects=objects)


def compressed(**options):
    engine = of_the_library(**options)
    engine.handlers["Update"].model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return engine


def run(build, place, until, override=(), **options):
    """Where a run began that is saved at its end, and its last weights."""
    engine = build(**options)
    if place is not None:
        engine.add(Checkpoint(place, resume=True, override=override))
    began = []
    engine.on(Events.STARTED)(lambda state: began.append(state.iteration))
    engine.run(data(), max_iterations=until)
    modules = [each for each in engine.objects.values() if isinstance(each, nn.Module)]
    return began, [each.tolist() for module in modules for each in module.parameters()]


class Told(logging.Handler):
    """Remembers what doubts were told."""

    def __init__(self):
        super().__init__()
        self.doubts = []

    def emit(self, record):
        if "last bit" in record.getMessage():
            self.doubts.append(record.getMessage())


def check(build, parts, **options):
    name = f"{build.__name__}-{'-'.join(map(str, (*parts, *options)))}"
    _, whole = run(build, None, parts[-1], **options)
    resumed = None
    for begins, ends in zip((0, *parts), parts, strict=False):
        began, resumed = run(build, PLACE / name, ends, **options)
        assert began == [begins], began
    assert resumed == whole, name
    assert not told.doubts, told.doubts


def doubts_of(change, **options):
    """What a run says of a model with this change at its beginning."""
    engine = of_the_library(**options)
    change(engine.handlers["Update"].model)
    place = PLACE / f"doubts-{change.__name__}-{'-'.join(options)}"
    engine.add(Checkpoint(place)).run(data(), max_iterations=1)
    found, told.doubts = told.doubts, []
    return found


def nothing(model):
    pass


def power(model):
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def hooked(model):
    model.module.unlike.register_post_accumulate_grad_hook(lambda parameter: None)


def doubts_of_wider():
    """The doubts of a run that goes on with buckets of another size."""
    run(of_ones_own, PLACE / "wider", 2)
    began, _ = run(of_ones_own, PLACE / "wider", 3, bucket_cap_mb=25)
    assert began == [2]
    found, told.doubts = told.doubts, []
    return found


def doubts_of_another_name():
    """The doubts of a run that goes on with models whose object has another name."""
    run(of_ones_own, PLACE / "named", 2)
    began, _ = run(of_ones_own, PLACE / "named", 3, override=["both", "all"], name="all")
    assert began == [2]
    found, told.doubts = told.doubts, []
    return found


def gradients_at_the_start_of_a_resumed_run():
    """Of weights that had gradients of 1 before: whether these stay where buckets are arranged."""
    run(of_ones_own, PLACE / "held", 2)
    engine = of_ones_own().add(Checkpoint(PLACE / "held", resume=True))
    parameters = [each for each in engine.objects["both"].parameters() if each.requires_grad]
    for each in parameters:
        each.grad = torch.ones_like(each)
    found = []
    engine.on(Events.STARTED)(lambda state: found.extend(each.grad for each in parameters))
    engine.run(data(), max_iterations=3)
    return [each is not None and bool(each.eq(1).all()) for each in found]


told = Told()
logging.getLogger("camshaft").addHandler(told)
with ranks.process_group("gloo"):
    check(of_the_library, (4, 6))
    check(of_ones_own, (1, 3))
    check(of_ones_own, (2, 3, 4, 5))
    check(of_the_library, (2, 4, 6), gradient_as_bucket_view=True)
    check(of_ones_own, (1, 3), gradient_as_bucket_view=True)
    check(of_the_library, (2, 6), find_unused_parameters=True)
    check(compressed, (2, 6))
    assert gradients_at_the_start_of_a_resumed_run() == [True] * 22
    first = ranks.rank() == 0
    assert not doubts_of(nothing)
    for change, options, why in (
        (nothing, {"static_graph": True}, "static_graph=True"),
        (power, {}, "a communication hook with a state of its own"),
        (hooked, {}, "hooks of parameters"),
    ):
        doubts = [each for each in doubts_of(change, **options) if "buckets" in each]
        assert [each.endswith(why) for each in doubts] == [True] * first, doubts
    assert len(found := doubts_of_wider()) == 2 * first, found
    assert len(found := doubts_of_another_name()) == 2 * first, found
    known = (
        "the gradient buckets of 'all' are not known; the saved run has those of 'both', 'both.1'"
    )
    assert not first or known in found[0], found
