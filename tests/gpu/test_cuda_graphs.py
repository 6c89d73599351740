"""`compile={"mode": "reduce-overhead"}`: torch records CUDA graphs, whose memory is used again."""

from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.mutation_guard import GenerationTracker
from torch._dynamo.utils import counters
from torch._functorch.aot_autograd import make_boxed_func
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import ClipGradNorm, LRSchedule, Validate
from camshaft.handlers.schedules import cosine

# What torch imports to compile an optimizer warns about itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")


class Reused:
    """A backend that does to memory on the CPU what CUDA graphs of torch do to it on a GPU.

    What compiled functions have made is overwritten when one of them is called in a new step. That
    is each call, unless `torch.compiler.cudagraph_mark_step_begin` says when a step begins.
    """

    def __init__(self):
        self.made, self.step = [], None

    def __call__(self, graph, inputs, mode):
        return aot_autograd(fw_compiler=self.part)(graph, inputs)

    def part(self, graph, inputs):
        def call(*given):
            step = marks().mark_step_counter or GenerationTracker.generation
            if step != self.step:
                for each in self.made:
                    each.fill_(255)  # NaN
                self.step, self.made = step, []
            made = graph(*given)
            known = storages(given)
            new = storages(made)
            self.made += [new[place] for place in new.keys() - known.keys()]
            return made

        return make_boxed_func(call)


def marks():
    from torch._inductor.cudagraph_trees import MarkStepBox  # takes seconds to import

    return MarkStepBox


def storages(tensors):
    found = [each.untyped_storage() for each in tensors if isinstance(each, torch.Tensor)]
    return {each.data_ptr(): each for each in found if each.nbytes()}


@pytest.fixture(autouse=True)
def _nothing_compiled():
    torch._dynamo.reset()
    counters.clear()
    yield
    marks().mark_step_counter = 0


def data(samples):
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, 16, generator=draw)
    return TensorDataset(inputs, torch.randint(4, (samples,), generator=draw))


def trained(device, compile, **options):
    """The weights after a run, and what its handlers kept of each iteration, read at its end."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.to(device).parameters(), lr=1e-2)
    engine = supervised(model, optimizer, cross_entropy, compile=compile, **options)
    first = Events.ITERATION_COMPLETED(at=(1, 4, 7, 10))  # in the middle of a window of two
    engine.add(ClipGradNorm(1.0), LRSchedule(cosine()))
    engine.add(Validate(DataLoader(data(8), 8), name="mid", when=first))
    kept = []
    engine.on(Events.STEP_COMPLETED)(lambda state: kept.append(state.metrics["grad_norm"]))
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: kept.extend((state.metrics["loss"], state.output.prediction))
    )
    engine.run(DataLoader(data(20), 8), max_epochs=4)  # two batches of 8, and one of 4
    return [each.cpu() for each in (*model.state_dict().values(), *kept)]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"accumulate": 2}, marks=pytest.mark.slow),
        pytest.param({}, marks=pytest.mark.soak),
        pytest.param({"accumulate": 2, "split": 5}, marks=pytest.mark.soak),
    ],
    ids=["accumulate", "plain", "split"],
)
def test_gradients_and_what_handlers_keep_are_there_for_as_long_as_they_are_needed(options):
    expected = trained("cpu", {"backend": "aot_eager"}, **options)
    found = trained("cpu", {"backend": Reused(), "mode": "max-autotune"}, **options)
    assert all(map(torch.equal, found, expected))


def trained_by_a_step_of_ones_own(options, accumulate):
    """The weights after a run, and the norms before clipping."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    update = Update(optimizer, accumulate=accumulate, compile=options)
    loss_of = torch.compile(lambda x, y: cross_entropy(model(x), y), dynamic=False, **options)

    def step(state, batch):
        with update.micro_batch(state):
            update(state, loss_of(*batch))

    engine, norms = Engine(step, ClipGradNorm(0.1)), []
    engine.on(Events.STEP_COMPLETED)(lambda state: norms.append(state.metrics["grad_norm"]))
    engine.run(DataLoader(data(16), 4), max_epochs=2)
    return [*model.state_dict().values(), *norms]


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [2, pytest.param(1, marks=pytest.mark.soak)])
def test_in_a_step_of_ones_own_the_micro_batch_says_when_a_step_begins(accumulate):
    expected = trained_by_a_step_of_ones_own({"backend": "aot_eager"}, accumulate)
    options = {"backend": Reused(), "mode": "reduce-overhead"}
    found = trained_by_a_step_of_ones_own(options, accumulate)
    assert all(map(torch.equal, found, expected))


@pytest.mark.slow
def test_the_backend_overwrites_gradients_where_nothing_says_when_a_step_begins():
    weight = nn.Parameter(torch.ones(3))
    compiled = partial(torch.compile, backend=partial(Reused(), mode=None), dynamic=False)
    loss, clip = compiled(lambda: weight.square().sum()), compiled(nn.utils.clip_grad_norm_)
    loss().backward()
    assert clip([weight], 1.0).isnan()
    weight.grad = None
    torch.compiler.cudagraph_mark_step_begin()
    loss().backward()
    assert clip([weight], 1.0) == torch.tensor(12.0).sqrt()


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"accumulate": 2}], ids=["plain", "accumulate"])
def test_a_run_that_replays_cuda_graphs_is_the_compiled_one(options):
    found = trained("cuda", {"mode": "reduce-overhead"}, **options)
    assert counters["inductor"]["cudagraph_recorded_non_static_inputs"]  # it has recorded some
    expected = trained("cuda", True, **options)
    assert all(map(torch.equal, found, expected))
