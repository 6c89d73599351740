"""`compile="cuda-graphs"` on a GPU; its twin for the CPU, on a tape, is test_capturing.py."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, State, Update, supervised
from camshaft.handlers import EMA, Checkpoint, ClipGradNorm, LRSchedule, NonFiniteGuard, Validate

pytestmark = pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
# float32 has 1/8 and its halves exactly, which a number and a tensor then are alike.
FUSED = partial(torch.optim.AdamW, lr=0.125, fused=True)
MOMENTUM = partial(torch.optim.SGD, lr=0.125, momentum=0.5, fused=True)
PLAIN = partial(torch.optim.SGD, lr=0.125, momentum=0.5)


@pytest.fixture(autouse=True)
def _same_bits_again():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.cuda.set_sync_debug_mode("default")


def data(samples=90):
    draw = torch.Generator().manual_seed(1)
    return TensorDataset(
        torch.randn(samples, 16, generator=draw), torch.randint(4, (samples,), generator=draw)
    )


def loader(**options):
    return DataLoader(data(), 8, shuffle=True, pin_memory=True, **options)  # and a short batch


def build(compile, kind=FUSED, model=None, **options):
    torch.manual_seed(0)
    layers = (nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    model = (nn.Sequential(*layers) if model is None else model).cuda()
    return supervised(model, kind(model.parameters()), cross_entropy, compile=compile, **options)


def run(engine, batches=None, **options):
    torch.manual_seed(2)
    losses = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: losses.append(state.metrics["loss"]))
    state = engine.run(loader() if batches is None else batches, **{"max_epochs": 5, **options})
    leaves = torch.utils._pytree.tree_leaves([o.state_dict() for o in engine.objects.values()])
    weights = [each.cpu() for each in leaves if isinstance(each, torch.Tensor)]
    return state, torch.stack(losses).cpu(), weights


def served(engine):
    """How many recordings there are."""
    return sum(len(getattr(each, "_passes", ())) for each in engine.handlers.values())


def assert_equal(found, expected):
    assert torch.equal(found[1], expected[1])
    assert all(torch.equal(a, b) for a, b in zip(found[2], expected[2], strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [FUSED, MOMENTUM, PLAIN], ids=["AdamW", "momentum", "unfused"])
@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate": 2}, {"precision": "bf16"}, {"precision": "fp16", "accumulate": 2}],
    ids=["fp32", "accumulate", "bf16", "fp16"],
)
def test_a_recorded_run_is_the_plain_one_to_the_last_bit(kind, options):
    ends = []
    for compile in ("cuda-graphs", False):
        engine = build(compile, kind, **options).add(
            ClipGradNorm(1.0),
            LRSchedule(partial(LambdaLR, lr_lambda=lambda step: 0.5 ** (step // 6))),
            EMA(0.9),
            Validate(DataLoader(data(24), 8)),
        )
        ends.append(run(engine))
        # The short batch comes second in its window.
        sizes = {1: 2, 2: 3}[options.get("accumulate", 1)]
        assert served(engine) == (sizes if compile else 0)
    assert_equal(*ends)


@pytest.mark.gpu
def test_a_step_that_is_capturable_is_torchs_own_with_its_rate_in_a_tensor():
    def trained(compile):
        torch.manual_seed(0)
        model = nn.Linear(16, 4).cuda()
        rate = torch.tensor(0.1, device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, capturable=True)
        update, draw = Update(optimizer, compile=compile), torch.Generator("cuda").manual_seed(1)
        for number in range(20):
            rate.fill_(0.1 / (number + 1))
            input = torch.randn(8, 16, device="cuda", generator=draw)
            update(State(iteration=number + 1), model(input).pow(2).mean())
        return [each.detach().cpu() for each in model.parameters()]

    assert all(map(torch.equal, trained("cuda-graphs"), trained(False)))


@pytest.mark.gpu
def test_a_resumed_run_is_the_uninterrupted_one_to_the_last_bit(tmp_path):
    def make(name, most=0):
        saves = Checkpoint(tmp_path / name, when=Events.ITERATION_COMPLETED(every=7), resume=True)
        engine = build("cuda-graphs", accumulate=2).add(ClipGradNorm(1.0), EMA(0.9), saves)
        if most:
            stop = Events.ITERATION_COMPLETED(at=most)
            engine.on(stop)(lambda state: state.interrupt("enough"))
        return engine

    whole, first = run(make("whole")), run(make("parts", 31))
    rest = run(make("parts"))
    assert torch.equal(torch.cat([first[1], rest[1]]), whole[1])
    assert all(torch.equal(a, b) for a, b in zip(rest[2], whole[2], strict=True))


@pytest.mark.gpu
def test_loader_workers_and_saves_in_the_background_go_on_while_it_records(tmp_path):
    ends = []
    for compile in ("cuda-graphs", False):
        saves = Checkpoint(tmp_path / str(compile), when=Events.ITERATION_COMPLETED(every=1))
        engine = build(compile).add(saves)
        ends.append(run(engine, loader(num_workers=2)))
    assert_equal(*ends)


@pytest.mark.gpu
def test_a_recorded_step_never_waits():
    engine = build("cuda-graphs", accumulate=2).add(
        ClipGradNorm(1.0), EMA(0.9), NonFiniteGuard("raise", every=10**6)
    )
    watched = []

    @engine.on(Events.ITERATION_STARTED(after=60))
    def watch(state):
        torch.cuda.set_sync_debug_mode("error")
        watched.append(state.iteration)

    @engine.on(Events.ITERATION_COMPLETED(at=100))  # before the guard's last look
    def stop(state):
        torch.cuda.set_sync_debug_mode("default")

    run(engine, [*DataLoader(data(80), 8, pin_memory=True)] * 10, max_epochs=1)
    assert len(watched) == 40
    assert served(engine) == 2


@pytest.mark.gpu
def test_memory_does_not_grow():
    engine, used = build("cuda-graphs"), []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: used.append(torch.cuda.memory_allocated()))
    run(engine, max_epochs=12)
    assert used[-1] - used[6] <= 2**16  # the losses that the test itself keeps


class Reading(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 4)

    def forward(self, input):
        return self.linear(input) * float(input.sum() > 0)


@pytest.mark.gpu
def test_a_model_that_waits_says_what_recorded_it_and_the_device_goes_on():
    with pytest.raises(RuntimeError) as caught:
        run(build("cuda-graphs", model=Reading()))
    assert "leave out of the model and the loss what waits" in "\n".join(caught.value.__notes__)
    assert run(build(False, model=Reading()))[0].epoch == 5
    engine = build("cuda-graphs")
    assert run(engine)[0].epoch == 5
    assert served(engine) == 2
