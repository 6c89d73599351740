"""`compile="cuda-graphs"` on a `Tape`: a recorded run is the plain one to the last bit."""

import logging
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch.utils._pytree import tree_flatten
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, Output, Update, supervised
from camshaft.handlers import (
    EMA,
    Checkpoint,
    ClipGradNorm,
    ClipGradValue,
    GradNorm,
    LRSchedule,
    NonFiniteGuard,
    Validate,
)
from camshaft.handlers.schedules import cosine, warmup

from .tape import Tape

cross_entropy = torch.nn.functional.cross_entropy
FUSED = partial(torch.optim.AdamW, lr=0.1, fused=True)
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True)


class Net(torch.nn.Module):
    """A batch norm and dropout: what a pass writes, and what draws random numbers."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8, bias=False)
        self.norm = torch.nn.BatchNorm1d(8)
        self.dropout = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, input):
        return self.last(self.dropout(self.norm(self.first(input)).relu()))


def data(samples=22):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, 4, generator=generator)
    return TensorDataset(inputs, torch.randint(3, (samples,), generator=generator))


def build(compile, kind=FUSED, model=None, loss_fn=cross_entropy, **options):
    torch.manual_seed(0)
    model = Net() if model is None else model()
    return supervised(model, kind(model.parameters()), loss_fn, compile=compile, **options)


def run(engine, batches=None, **options):
    torch.manual_seed(2)
    batches = DataLoader(data(), 4, shuffle=True) if batches is None else batches
    return engine.run(batches, **{"max_epochs": 5, **options})


def seen(engine, names=("loss", "grad_norm")):
    """What handlers see in each event of a step; gradients as they are there, outputs kept."""
    rows = []

    def note(event, state):
        optimizer = state.engine.objects["optimizer"]
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"]]
        rows.append(
            (
                *(event.name, state.iteration, state.step, state.output),
                {name: state.metrics[name] for name in names if name in state.metrics},
                [None if each is None else each.clone() for each in gradients],
                [each.clone() for each in state.engine.objects["model"].state_dict().values()],
            )
        )

    for event in (
        *(Events.ITERATION_STARTED, Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY),
        *(Events.STEP_COMPLETED, Events.STEP_SKIPPED, Events.ITERATION_COMPLETED),
    ):
        engine.on(event)(partial(note, event))
    return rows


def assert_alike(one, other):
    """The same structure and the same bits; NaN is like NaN, 0.0 is not like -0.0."""
    (ones, form), (others, other_form) = tree_flatten(one), tree_flatten(other)
    assert form == other_form
    for mine, theirs in zip(ones, others, strict=True):
        if isinstance(mine, torch.Tensor):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(mine.signbit() & ~mine.isnan(), theirs.signbit() & ~theirs.isnan())
        else:
            assert mine == theirs


def assert_same_run(make, least=1, **options):
    """Run it plain and recorded: equal in each event and at the end."""
    tape = Tape()
    plain, recorded = make(False), make(tape)
    expected, rows = seen(plain), seen(recorded)
    ends = run(plain, **options), run(recorded, **options)
    assert len(expected) == len(rows)
    for one, other in zip(expected, rows, strict=True):
        assert_alike(one, other)
    for name in plain.objects:
        saved = [each.objects[name].state_dict() for each in (plain, recorded)]
        assert_alike(*saved)
    assert dict(ends[0].metrics) == dict(ends[1].metrics)
    assert len(tape.launches) >= least
    return tape


def everything(compile, **options):
    return build(compile, **options).add(
        ClipGradNorm(1.0),
        LRSchedule(warmup(2).then(cosine(final=0.1))),
        EMA(0.9),
        Validate(DataLoader(data(7), 4)),
        Validate(DataLoader(data(7), 4), "mid", Events.ITERATION_COMPLETED(every=3), weights="ema"),
    )


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate": 2},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"kind": MOMENTUM}, marks=pytest.mark.slow),
        pytest.param(
            {"accumulate": 3, "weight": lambda output: output.target.numel()},
            marks=pytest.mark.slow,
        ),
        pytest.param({"precision": "bf16"}, marks=pytest.mark.slow),
        pytest.param({"precision": "fp16", "accumulate": 2}, marks=pytest.mark.slow),
    ],
    ids=["accumulate", "AdamW", "momentum", "weight", "bf16", "fp16"],
)
def test_a_recorded_run_is_the_plain_one_in_each_event(options):
    tape = assert_same_run(partial(everything, **options), least=15)
    # A pass of each size and each place in a window, the step and clipping; no size twice.
    assert tape.recordings <= 8


def test_each_size_of_a_batch_has_a_recording_after_it_ran_three_times():
    tape = Tape()
    engine = build(tape)
    counts = []
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: counts.append((state.iteration, len(state.batch[0]), tape.recordings))
    )
    run(engine)
    first = [next(n for n, _, made in counts if made == number) for number in (1, 2, 3)]
    assert first == [4, 5, 24]  # the pass, the step, whose first one made its state; the short one
    assert counts[-1] == (30, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("guard", ["skip", "raise"])
def test_a_guard_decides_between_the_recorded_parts(guard):
    batches = [*DataLoader(data(20), 4)] * 2
    bad = (torch.full((4, 4), torch.nan), torch.zeros(4).long())
    if guard == "skip":
        batches[7] = bad

    def make(compile):
        return build(compile).add(NonFiniteGuard(guard, every=3), GradNorm(), ClipGradValue(0.1))

    assert_same_run(make, batches=batches, max_epochs=2)


def test_a_step_that_a_fused_optimizer_must_not_take_leaves_the_weights_alone():
    batches = [*DataLoader(data(20), 4)] * 3
    batches[9] = (torch.full((4, 4), torch.nan), torch.zeros(4).long())
    ends = []
    for compile in (False, tape := Tape()):
        engine = build(compile).add(NonFiniteGuard("raise", every=7))
        with pytest.raises(FloatingPointError, match="step 10"):
            run(engine, batches, max_epochs=1)
        ends.append(engine.objects["model"].state_dict())
    assert tape.launches
    assert_alike(*ends)


@pytest.mark.slow
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    def make(directory, compile):
        return everything(compile, accumulate=2).add(
            Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=7), resume=True)
        )

    def end(directory, first, then=None):
        if then is not None:
            engine = make(directory, first)
            engine.on(Events.ITERATION_COMPLETED(at=17))(lambda state: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run(engine)  # the last save is in the middle of an epoch and of a window
        engine = make(directory, first if then is None else then)
        state = run(engine)
        assert state.iteration == 30
        return dict(state.metrics), {n: each.state_dict() for n, each in engine.objects.items()}

    expected = end(tmp_path / "whole", False)
    for number, pair in enumerate([(Tape(),), (Tape(), Tape()), (False, Tape()), (Tape(), False)]):
        found = end(tmp_path / str(number), *pair)
        assert found[0] == expected[0]
        assert_alike(found[1], expected[1])


def test_a_rate_that_was_recorded_as_a_number_would_be_caught():
    def trained(take):
        weight = torch.nn.Parameter(torch.ones(3))
        weight.grad = torch.full((3,), 0.5)
        optimizer = torch.optim.SGD([weight], lr=0.1, fused=True)
        step = take(optimizer)
        for number in range(8):
            optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
            step()
        return weight.detach()

    def naively(optimizer):
        replay, _ = Tape().record(optimizer.step)
        return replay

    def ours(optimizer):
        tapes.append(Tape())
        return Update(optimizer, compile=tapes[0]).compiled.step

    tapes = []
    plain = trained(lambda optimizer: optimizer.step)
    assert not torch.equal(trained(naively), plain)
    assert torch.equal(trained(ours), plain)
    assert tapes[0].launches == [0] * 5


def test_what_a_fused_optimizer_is_told_after_its_recording_is_seen():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=True)
    step, rows = Update(optimizer, compile=(tape := Tape())).compiled.step, []
    for number in range(20):
        weight.grad = torch.full((3,), 0.5)
        if number >= 8:
            optimizer.found_inf = torch.tensor(float(number % 2))
        step()
        rows.append(weight[0].item())
    assert [a == b for a, b in pairwise(rows[7:])] == [False, True] * 6
    assert len(tape.launches) == 5 + 9


def test_gradients_have_one_address_in_all_recordings():
    places = set()
    engine = build(Tape(), accumulate=2)
    engine.on(Events.STEP_COMPLETED(after=14))(
        lambda state: places.add(
            tuple(each.grad.data_ptr() for each in engine.objects["model"].parameters())
        )
    )
    run(engine, max_epochs=8)
    assert len(places) == 1
    recorded = engine.handlers  # and each recording itself writes them there
    for each in next(h for h in recorded.values() if hasattr(h, "_passes"))._passes:
        assert tuple(g.data_ptr() for _, g in each.gradients) in places


def test_during_a_step_the_rate_is_a_tensor_and_afterwards_the_number():
    seen = []

    class Looking(torch.optim.AdamW):
        def step(self, closure=None):
            (group,) = self.param_groups
            seen.append((type(group["lr"]), group["capturable"]))
            return super().step(closure)

    engine = build(Tape(), partial(Looking, lr=0.1, fused=True))
    run(engine)
    # Four as they are, and the recorded one: torch refuses to record it if it is not capturable.
    assert seen == [(torch.Tensor, True)] * 5
    (group,) = engine.objects["optimizer"].param_groups
    assert (group["lr"], type(group["lr"]), group["capturable"]) == (0.1, float, False)


def thaw(state):
    model = state.engine.objects["model"]
    model.first.weight.requires_grad_(state.iteration >= 12)


def settle(state):
    state.engine.objects["model"].norm.training = state.iteration < 12


def rewind(state):
    optimizer = state.engine.objects["optimizer"]
    optimizer.load_state_dict(optimizer.state_dict())  # other tensors


def decay(state):
    state.engine.objects["optimizer"].param_groups[0]["weight_decay"] = state.iteration // 12


def replace_gradients(state):
    for each in state.engine.objects["model"].parameters():
        if each.grad is not None:
            each.grad = each.grad * 2


def move(state):
    if state.iteration == 12:
        for each in state.engine.objects["model"].parameters():
            each.data = each.data.clone()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "change"),
    [
        (Events.ITERATION_STARTED, thaw),
        (Events.ITERATION_STARTED, settle),
        (Events.ITERATION_STARTED(at=(12, 20)), rewind),
        (Events.ITERATION_STARTED, decay),
        (Events.GRADIENTS_READY, replace_gradients),
        (Events.ITERATION_STARTED, move),
    ],
    ids=["thawed", "modes", "rewound", "settings", "gradients", "moved"],
)
def test_what_changes_between_batches_is_seen(event, change):
    def make(compile):
        engine = build(compile)
        engine.on(event)(change)
        return engine.add(ClipGradNorm(1.0))

    assert_same_run(make, least=30)


@pytest.mark.slow
def test_a_step_of_ones_own_has_its_clipping_and_its_step_recorded():
    def make(compile):
        torch.manual_seed(0)
        model = Net()
        update = Update(FUSED(model.parameters()), accumulate=2, compile=compile)

        def step(state, batch):
            loss = cross_entropy(model(batch[0]), batch[1])
            state.metrics["loss"] = loss.detach()
            update(state, loss)

        objects = {"model": model, "optimizer": update.optimizer}
        return Engine(step, update, ClipGradNorm(1.0), objects=objects)

    tape = assert_same_run(make, least=20)
    assert tape.recordings == 2


@pytest.mark.slow
def test_an_update_that_is_given_records_with_its_own_recorder():
    def make(compile):
        def kind(parameters):
            return Update(FUSED(parameters), accumulate=2, compile=compile)

        return build(compile, kind)

    assert_same_run(make, least=20)


@pytest.mark.slow
def test_a_model_that_computes_its_loss_gets_named_inputs():
    class Own(Net):
        def forward(self, input, labels=None):
            logits = super().forward(input)
            return {"loss": cross_entropy(logits, labels), "logits": logits}

    batches = [{"input": one, "labels": two} for one, two in DataLoader(data(), 4)]
    assert_same_run(partial(build, model=Own, loss_fn=None), least=20, batches=batches)


@pytest.mark.slow
def test_values_beside_the_tensors_of_a_batch_belong_to_the_recording():
    class Scaled(Net):
        def forward(self, input, factor):
            return super().forward(input) * factor

    pairs = [*DataLoader(data(20), 4)]
    batches = [({"input": one, "factor": 1 + n % 2}, two) for n, (one, two) in enumerate(pairs * 3)]
    assert_same_run(partial(build, model=Scaled), batches=batches)


@pytest.mark.slow
def test_batches_whose_loss_is_none_are_skipped():
    def loss_fn(output, target):
        return None if len(target) == 2 else cross_entropy(output, target)

    assert_same_run(partial(build, loss_fn=loss_fn, accumulate=2))


def test_the_metric_and_outputs_that_handlers_keep_are_not_overwritten():
    kept = []
    engine = build(Tape())
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: kept.append((state.output, state.output.loss.item(), state.batch))
    )
    run(engine)
    for output, loss, batch in kept:
        assert isinstance(output, Output)
        assert output.loss.item() == loss
        assert output.target is batch[1]


@pytest.mark.slow
def test_an_optimizer_that_computes_with_its_rate_on_the_host_steps_as_it_is(caplog):
    tape = assert_same_run(partial(everything, kind=partial(torch.optim.SGD, lr=0.1)), least=20)
    assert tape.recordings == 3  # two passes, and clipping
    said = [each.message for each in caplog.records if "is not recorded" in each.message]
    assert len(said) == 1
    assert "SGD(..., fused=True)" in said[0]


@pytest.mark.slow
def test_an_optimizer_that_counts_in_python_is_never_recorded(caplog):
    class Counting(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                group["count"] = group.get("count", 0) + 1
                for each in group["params"]:
                    each.data.add_(each.grad / group["count"])

    kind = partial(Counting, lr=0.1, fused=True)
    tape = assert_same_run(partial(build, kind=kind), least=20)
    assert tape.recordings == 2
    said = [each.message for each in caplog.records if "is not recorded" in each.message]
    assert len(said) == 1
    assert "a number in its state or its settings is another one in each step" in said[0]


def test_hooks_of_an_optimizer_are_called_at_each_step():
    calls = []
    engine = build(Tape())
    engine.objects["optimizer"].register_step_post_hook(lambda *_: calls.append(1))
    assert run(engine).step == len(calls)


@pytest.mark.slow
def test_recordings_are_counted_and_batches_of_ever_other_sizes_are_told_of_once(caplog):
    caplog.set_level(logging.INFO, "camshaft")
    run(build(Tape()), max_epochs=6)
    assert [each.message for each in caplog.records] == [
        "compile='cuda-graphs': 1 recordings served 2 batches of epoch 1; 4 ran without, as each "
        "size of a batch does at first"
    ]
    caplog.clear()
    sizes = [(torch.ones(n, 4), torch.zeros(n).long()) for n in range(2, 22)]
    run(build(Tape()), sizes, max_epochs=8)
    assert [each.levelname for each in caplog.records] == ["INFO", "WARNING"]
    assert "served 0 batches of epoch 3, and 20 ran without" in caplog.records[1].message
    assert "Pad batches to a few lengths" in caplog.records[1].message


def test_a_model_that_reads_from_the_device_says_what_recorded_it():
    class Reading(Net):
        def forward(self, input):
            return super().forward(input) * float(input.sum() > 0)

    with pytest.raises(RuntimeError, match="not permitted while a device records") as caught:
        run(build(Tape(), model=Reading))
    notes = "\n".join(caught.value.__notes__)
    assert "leave out of the model and the loss what waits for the device" in notes


def test_a_model_that_replaces_a_buffer_is_refused():
    class Replacing(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, input):
            self.mean = self.mean * 0.9 + input.mean(0) * 0.1
            return super().forward(input - self.mean)

    with pytest.raises(ValueError, match=r"replaces one of its parameters or buffers.*copy_"):
        run(build(Tape(), model=Replacing))


def test_hooks_of_a_module_are_refused_before_the_first_batch():
    engine = build(Tape())
    engine.on(Events.ITERATION_STARTED)(lambda state: 1 / 0)
    engine.objects["model"].norm.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="BatchNorm1d has the hook .*<lambda>"):
        run(engine)


@pytest.mark.slow
def test_hooks_of_torch_are_recorded():
    def model():
        net = Net()
        torch.nn.utils.spectral_norm(net.last)
        return net

    assert_same_run(partial(build, model=model), least=20)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"split": 2}, "split=2 does not go with .* accumulate= more"),
        ({"kind": torch.optim.LBFGS}, "LBFGS evaluates the loss several times a step"),
        ({"kind": lambda p: Update(FUSED(p))}, r"Update\(optimizer, model=model, compile="),
        (
            {"kind": lambda p: Update(FUSED(p), compile={"backend": "eager"})},
            r"Update\(optimizer, model=model, compile=",
        ),
    ],
    ids=["split", "closure", "update", "compiled update"],
)
def test_what_cannot_be_recorded_is_refused_at_once(options, said):
    with pytest.raises(ValueError, match=said):
        build(Tape(), **options)


def test_sparse_gradients_are_refused():
    class Sparse(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(9, 3, sparse=True)

        def forward(self, input):
            return self.embed(input)

    batch = torch.zeros(4).long(), torch.zeros(4).long()
    kind = partial(torch.optim.SGD, lr=0.1, fused=True)
    with pytest.raises(ValueError, match=r"a gradient is sparse.*sparse=False"):
        run(build(Tape(), kind, model=Sparse), [batch] * 9, max_epochs=1)


@pytest.mark.parametrize("where", ["supervised", "Update"])
def test_a_cpu_has_no_cuda_graphs(where):
    if where == "supervised":
        with pytest.raises(ValueError, match=r"needs a GPU, and the model is on 'cpu': device="):
            build("cuda-graphs")
        return
    model = Net()
    update = Update(FUSED(model.parameters()), compile="cuda-graphs")
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    with pytest.raises(ValueError, match=r"Update\(compile='cuda-graphs'\) records CUDA graphs"):
        update.compiled.step()
