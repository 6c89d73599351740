"""`compile=`: what is compiled, how often, and that it computes what compiling by hand computes."""

import logging
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, State, Update, supervised
from camshaft.handlers import (
    EMA,
    Average,
    Checkpoint,
    ClipGradNorm,
    ClipGradValue,
    LRSchedule,
    NonFiniteGuard,
    SpikeGuard,
    Validate,
)
from camshaft.handlers.schedules import cosine, warmup

cross_entropy = torch.nn.functional.cross_entropy
EAGER = {"backend": "eager"}
# What torch imports to compile an optimizer warns about itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    counters.clear()


def test_a_loss_without_a_target_is_compiled_and_counts_samples_by_the_input():
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loss_fn = lambda output, _: output.square().mean()  # noqa: E731
    engine = supervised(model, optimizer, loss_fn, compile=EAGER)
    batches = [torch.ones(6, 1), 3 * torch.ones(2, 1)]
    assert engine.evaluate(batches).metrics["loss"] == 3.0
    assert engine.run(batches[:1], max_epochs=1).output.samples == 6
    assert model.weight.item() == pytest.approx(0.8)
    needing = supervised(model, optimizer, torch.nn.functional.mse_loss, compile=EAGER)
    assert needing.evaluate(batches).metrics == {}
    with pytest.raises(TypeError, match="a Tensor, without a target"):
        needing.run(batches, max_epochs=1)


class Net(torch.nn.Module):
    """A batch norm and dropout: what a mode changes, and what draws random numbers."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8, bias=False)
        self.norm = torch.nn.BatchNorm1d(8)
        self.dropout = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, input):
        return self.last(self.dropout(self.norm(self.first(input)).relu()))


def data(samples=14):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, 4, generator=generator)
    return TensorDataset(inputs, torch.randint(3, (samples,), generator=generator))


def graphs():
    return counters["stats"]["unique_graphs"]


def build(compile=EAGER, model=None, kind=torch.optim.AdamW, **options):
    torch.manual_seed(0)
    model = Net() if model is None else model
    optimizer = kind(model.parameters(), lr=0.1)
    return supervised(model, optimizer, cross_entropy, compile=compile, **options), model


def build_all(directory, compile=EAGER):
    """Every handler that changes a step, a rate at each step, a validation and checkpoints."""
    engine, model = build(compile, accumulate=2)
    return engine.add(
        NonFiniteGuard("skip"),
        SpikeGuard("rewind", steps=2),
        ClipGradNorm(1.0),
        LRSchedule(warmup(2).then(cosine(final=0.1))),  # the first rate is 0
        EMA(),
        Average("loss"),
        Validate(DataLoader(data(), 5)),
        Validate(DataLoader(data(7), 4), name="mid", when=Events.ITERATION_COMPLETED(every=3)),
        Checkpoint(directory, resume=True, when=Events.ITERATION_COMPLETED(at=6)),
    ), model


def run(engine, **options):
    torch.manual_seed(2)
    return engine.run(DataLoader(data(), 4, shuffle=True), **{"max_epochs": 4, **options})


def assert_equal(one, other):
    theirs = other.state_dict()
    for name, value in one.state_dict().items():
        assert torch.equal(value, theirs[name]), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"precision": "bf16", "split": 3},
        {"precision": "fp16", "kind": torch.optim.Adam},
        {
            "weight": lambda output: output.target.numel(),
            "accumulate": 3,
            "kind": partial(torch.optim.SGD, momentum=0.9),
        },
        {"kind": torch.optim.RMSprop},
    ],
    ids=["bf16 and split", "fp16 and Adam", "weight and momentum", "RMSprop"],
)
def test_nothing_is_compiled_later_with_any_setting_and_the_run_is_the_plain_one(options):
    engine, model = build(**options)
    plain, other = build(False, **options)
    seen = []
    for each in (engine, plain):
        each.add(ClipGradNorm(1.0), LRSchedule(warmup(2).then(cosine(final=0.1))))
        each.add(Validate(DataLoader(data(7), 4)))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: seen.append(graphs()))
    state, expected = run(engine), run(plain)
    assert seen == seen[:1] * 4
    assert (state.step, state.iteration) == (expected.step, expected.iteration)
    for name, value in model.state_dict().items():  # torch's compiled optimizers add otherwise
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager"])
def test_the_result_is_that_of_compiling_by_hand_to_the_last_bit(backend):
    engine, model = build({"backend": backend})
    engine.add(ClipGradNorm(1.0), LRSchedule(partial(LambdaLR, lr_lambda=lambda n: 1 / (n + 1))))
    state = run(engine, max_epochs=3)

    torch.manual_seed(0)
    mine = Net()
    torch.manual_seed(2)
    rate = torch.tensor(0.1, dtype=torch.float64)
    optimizer = torch.optim.AdamW(mine.parameters(), lr=rate)
    by_hand = partial(torch.compile, backend=backend, dynamic=False)
    forward = by_hand(lambda inputs, targets: cross_entropy(mine(inputs), targets))
    clip, step = by_hand(torch.nn.utils.clip_grad_norm_), by_hand(optimizer.step)
    loader = DataLoader(data(), 4, shuffle=True)
    count = 0
    for _ in range(3):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = forward(inputs, targets)
            loss.backward()
            norm = clip(list(mine.parameters()), 1.0)
            rate.fill_(0.1 / (count + 1))
            step()
            count += 1
    assert torch.equal(state.metrics["loss"], loss)
    assert torch.equal(state.metrics["grad_norm"], norm)
    assert_equal(model, mine)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager"])
def test_a_resumed_run_is_the_uninterrupted_one_to_the_last_bit(backend, tmp_path):
    whole, model = build_all(tmp_path / "whole", {"backend": backend})
    expected = run(whole)
    broken, _ = build_all(tmp_path / "broken", {"backend": backend})
    broken.on(Events.ITERATION_COMPLETED(at=7))(lambda state: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(broken)  # the last save is in the middle of an epoch, before its short batch
    torch._dynamo.reset()  # as in another process
    counters.clear()
    resumed, again = build_all(tmp_path / "broken", {"backend": backend})
    seen = []
    resumed.on(Events.EPOCH_COMPLETED)(lambda state: seen.append(graphs()))
    state = run(resumed)
    assert_equal(model, again)
    assert state.metrics.keys() == expected.metrics.keys()
    for name, value in state.metrics.items():
        assert value == expected.metrics[name], name
    assert len(seen) == 3
    assert seen[1] == seen[2]


@pytest.mark.slow
def test_checkpoints_of_a_compiled_run_are_those_of_a_plain_one(tmp_path):
    def build_one(compile, directory):
        engine, model = build(compile, kind=partial(torch.optim.SGD, momentum=0.9))
        return engine.add(Checkpoint(directory, resume=True)), model

    for first, then in [(EAGER, False), (False, EAGER)]:
        directory = tmp_path / str(then)
        before, _ = build_one(first, directory)
        run(before, max_epochs=1)
        assert list(before.objects["model"].state_dict()) == list(Net().state_dict())
        assert type(before.objects["optimizer"].param_groups[0]["lr"]) is float
        saved = deepcopy({name: each.state_dict() for name, each in before.objects.items()})
        after, _ = build_one(then, directory)
        loaded = []
        after.on(Events.STARTED)(
            lambda state, loaded=loaded, engine=after: loaded.append(
                deepcopy({name: each.state_dict() for name, each in engine.objects.items()})
            )
        )
        state = run(after, max_epochs=2)
        assert (state.epoch, state.iteration) == (2, 8)
        torch.testing.assert_close(loaded, [saved], rtol=0, atol=0)


def test_a_rate_of_zero_leaves_weights_as_they_are():
    engine, model = build(model=torch.nn.Linear(4, 3), kind=torch.optim.Adam)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    engine.objects["optimizer"].param_groups[0]["lr"] = 0.0
    engine.run([(torch.zeros(2, 4), torch.tensor([0, 1]))] * 2, max_epochs=1)  # gradients of 0
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_during_a_step_the_rate_is_a_tensor_and_a_failing_step_leaves_the_number():
    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            seen.append(self.param_groups[0]["lr"])
            raise ArithmeticError("the step fails")

    seen = []
    engine, _ = build(kind=Failing)
    with pytest.raises(ArithmeticError, match="the step fails"):
        run(engine)
    assert [(each.item(), each.dtype) for each in seen] == [(0.1, torch.float64)]
    assert engine.objects["optimizer"].param_groups[0]["lr"] == 0.1
    assert type(engine.objects["optimizer"].param_groups[0]["lr"]) is float


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_a_demand_for_foreach_is_kept_and_does_not_stop_compiling(kind):
    found = []
    for foreach in (None, True):
        weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        optimizer = kind([weight], lr=0.5, foreach=foreach)
        Update(optimizer, compile=EAGER)(State(), weight.sum())
        group = optimizer.param_groups[0]
        assert (group["lr"], group["foreach"]) == (0.5, foreach)
        found.append(weight.tolist())
    assert found[0] == found[1]


def test_groups_may_have_numbers_and_tensors_as_rates():
    seen = []

    class Looking(torch.optim.SGD):
        def step(self, closure=None):
            seen.append([group["lr"] for group in self.param_groups])

    model, rate = torch.nn.Linear(4, 3), torch.tensor(0.2)
    groups = [{"params": [model.weight], "lr": rate}, {"params": [model.bias]}]
    optimizer = Looking(groups, lr=0.1)
    run(supervised(model, optimizer, cross_entropy, compile=EAGER), max_iterations=1)
    assert [each.dtype for each in seen[0]] == [torch.float32, torch.float64]
    assert [group["lr"] for group in optimizer.param_groups] == [rate, 0.1]


@pytest.mark.slow
def test_each_size_of_a_batch_is_a_graph_of_its_own_whichever_came_first():
    def graphs_of(*sizes):
        made = []

        def backend(graph, inputs):
            made.append(tuple(each.shape for each in inputs if isinstance(each, torch.Tensor)))
            assert all(isinstance(each, torch.Tensor) for each in inputs)  # no size is an input
            return graph.forward

        torch._dynamo.reset()
        engine, _ = build({"backend": backend})
        engine.run([(torch.ones(n, 4), torch.zeros(n).long()) for n in sizes], max_epochs=2)
        return set(made)

    assert graphs_of(4, 2, 3) == graphs_of(3, 4, 2)


@pytest.mark.slow
def test_values_and_norms_are_clipped_by_compiled_code():
    made = []

    def backend(graph, inputs):
        made.append(graph.print_readable(print_output=False))
        return graph.forward

    engine, model = build({"backend": backend})
    plain, other = build(False)
    for each in (engine, plain):
        each.add(ClipGradNorm(1.0), ClipGradValue(0.01))
    run(engine, max_iterations=1)
    run(plain, max_iterations=1)
    assert any("_foreach_norm" in each for each in made)
    assert any("clamp" in each for each in made)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.slow
def test_a_step_written_by_hand_compiles_its_forward_pass_and_the_update_compiles_the_rest():
    torch.manual_seed(0)
    model = Net()
    forward = torch.compile(model, dynamic=False, **EAGER)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    update = Update(optimizer, compile=EAGER)

    def step(state, batch):
        loss = cross_entropy(forward(batch[0]), batch[1])
        if state.training:
            update(state, loss)

    objects = {"model": model, "optimizer": optimizer}
    run(Engine(step, update, ClipGradNorm(1.0), objects=objects))
    engine, other = build()
    run(engine.add(ClipGradNorm(1.0)))
    assert_equal(model, other)


def test_an_engine_that_only_evaluates_compiles_the_forward_pass():
    torch.manual_seed(0)
    model = Net()
    engine = supervised(model, loss_fn=cross_entropy, compile=EAGER)
    plain = supervised(model, loss_fn=cross_entropy)
    loader = DataLoader(data(), 4)
    assert engine.evaluate(loader).metrics == plain.evaluate(loader).metrics
    assert graphs() == 2  # one for each size


@pytest.mark.slow
def test_a_model_that_computes_its_loss_is_compiled():
    class Own(Net):
        def forward(self, input, labels=None):
            logits = super().forward(input)
            loss = None if labels is None else cross_entropy(logits, labels)
            return {"loss": loss, "logits": logits}

    torch.manual_seed(0)
    model = Own()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, compile={**EAGER, "fullgraph": True})
    batches = [{"input": input, "labels": labels} for input, labels in DataLoader(data(), 4)]
    state = engine.run(batches, max_epochs=1)
    assert state.step == 4
    assert engine.evaluate(batches).metrics["loss"] < 2


class Broken(Net):
    def forward(self, input):
        torch._dynamo.graph_break()
        return super().forward(input)


@pytest.mark.slow
# Of torch, where it goes on after a break with a tensor that has a graph.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_breaks_of_the_graph_are_told_once(caplog):
    engine, _ = build(model=Broken())
    run(engine)
    told = [each.message for each in caplog.records if "broken into several" in each.message]
    assert len(told) == 1
    assert "at 2 places" in told[0]
    assert "torch._dynamo.graph_break" in told[0]
    assert "TORCH_LOGS=graph_breaks" in told[0]


@pytest.mark.slow
def test_graphs_are_counted_and_batches_that_need_ever_more_are_warned_about(caplog):
    caplog.set_level(logging.INFO, "camshaft")
    batches = []

    class Growing:
        def __iter__(self):
            return iter(batches[-1:])

    engine, _ = build(model=torch.nn.Linear(4, 3))
    engine.on(Events.EPOCH_STARTED)(
        lambda state: batches.append((torch.ones(state.epoch, 4), torch.zeros(state.epoch).long()))
    )
    engine.run(Growing(), max_epochs=5)
    told = [each.message for each in caplog.records if "torch has made" in each.message]
    assert told[0] == "compile=: torch has made 2 graphs in epoch 1"
    assert len(told) == 2
    assert "1 more graphs in epoch 3" in told[1]
    assert "compile={'dynamic': True}" in told[1]


@pytest.mark.parametrize(
    ("compile", "said"),
    [
        ("max-autotune", r"compile=\{'mode': 'max-autotune'\}"),
        ({"mode": "reduce-overhead"}, "needs a GPU, and the model is on the CPU"),
        (1, "needs True, or arguments of torch.compile by name"),
        ("cuda-graphs", r"is gone: write compile=\{'mode': 'reduce-overhead'\}, by which torch"),
        ({"modus": "x"}, "has no argument 'modus'; it has fullgraph, dynamic"),
        ({"backend": "gcc"}, "gcc"),
        ({"mode": "fast"}, "fast"),
    ],
)
def test_what_torch_compile_does_not_know_is_refused_at_once(compile, said):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=said) as caught:
        build(compile)
    assert "supervised(compile=" in str(caught.value) + "".join(
        caught.value.__notes__ if hasattr(caught.value, "__notes__") else ()
    )


@pytest.mark.parametrize("how", ["outside", "in place"])
def test_a_model_that_is_compiled_already_is_refused(how):
    model = Net()
    if how == "outside":
        model = torch.compile(model, **EAGER)
    else:
        model.compile(**EAGER)
        model = torch.nn.DataParallel(model)
    with pytest.raises(ValueError, match="a model that is compiled already; leave"):
        build(model=model)
    build(False, model)  # without compile= it is as before


def test_an_update_that_does_not_compile_its_step_is_refused():
    model = Net()
    update = Update(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match=r"Update\(optimizer, model=model, compile=True\)"):
        supervised(model, update, cross_entropy, compile=True)


def test_an_optimizer_with_a_closure_is_refused():
    model = Net()
    with pytest.raises(ValueError, match="LBFGS evaluates the loss several times a step"):
        supervised(model, torch.optim.LBFGS(model.parameters()), cross_entropy, compile=True)


@pytest.mark.slow
def test_a_schedule_that_moves_more_than_the_rate_at_each_step_is_refused():
    engine, _ = build()
    schedule = partial(OneCycleLR, max_lr=0.1, total_steps=16)
    with pytest.raises(ValueError, match=r"moves 'betas' of the optimizer.*cycle_momentum=False"):
        run(engine.add(LRSchedule(schedule)))
    assert graphs() < 8


def test_other_settings_than_the_rate_may_be_moved_now_and_then():
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.5)
    update = Update(optimizer, compile={"backend": "eager", "disable": True})
    for momentum in (0.5, 0.25, 0.75, 0.75, 0.25):  # never at three steps in a row
        optimizer.param_groups[0]["momentum"] = momentum
        update(State(), weight.sum())
    assert weight.item() != 1.0


def test_an_error_of_the_compiler_says_what_asked_for_it_and_what_to_do():
    def backend(graph, inputs):
        raise OSError("no compiler here")

    engine, _ = build({"backend": backend})
    with pytest.raises(Exception, match="no compiler here") as caught:
        run(engine)
    notes = "\n".join(caught.value.__notes__)
    assert "asked for by compile=, and failed. Leave compile= out" in notes
    assert "in the process function Supervised.train, epoch 1, iteration 1" in notes


def test_a_graph_that_has_to_be_in_one_piece_and_is_broken_is_an_error_that_says_so():
    engine, _ = build({**EAGER, "fullgraph": True}, model=Broken())
    with pytest.raises(Exception, match="graph_break") as caught:
        run(engine)
    assert "asked for by compile=" in "\n".join(caught.value.__notes__)


def test_errors_of_the_step_itself_have_no_note_about_compiling():
    engine, _ = build()
    engine.on(Events.BACKWARD_COMPLETED)(lambda state: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        run(engine)
    assert "compile" not in "\n".join(caught.value.__notes__)
