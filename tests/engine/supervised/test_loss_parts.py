"""Losses in parts, and loss functions that are given the batch."""

import pytest
import torch
from torch.nn.functional import mse_loss

from camshaft import Events, Update, supervised
from camshaft.handlers import (
    Average,
    Checkpoint,
    History,
    Metrics,
    NonFiniteGuard,
    Throughput,
    Validate,
)

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
SIZES = (7, 7, 3)


def fit_and_size(output, target):
    fit, size = mse_loss(output, target), output.square().mean()
    return fit + 0.5 * size, {"fit": fit, "size": size}


def alone(output, target):
    return fit_and_size(output, target)[0]


def batches(sizes=SIZES):
    generator = torch.Generator().manual_seed(3)
    options = {"generator": generator, "dtype": torch.float64}
    return [(torch.randn(n, 3, **options), torch.randn(n, 1, **options)) for n in sizes]


def build(loss_fn, **arguments):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return supervised(model, optimizer, loss_fn, **arguments), model


def rows_of(engine):
    rows = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: rows.append(dict(state.metrics)))
    return rows


@pytest.mark.parametrize("arguments", [{}, {"accumulate": 2}, {"precision": "bf16"}])
def test_parts_change_no_bit_of_the_training_and_are_those_of_a_loop(arguments):
    engine, model = build(fit_and_size, **arguments)
    plain, twin = build(alone, **arguments)
    rows, made = rows_of(engine), []

    @engine.on(Events.ITERATION_COMPLETED)
    def compute(state):
        made.append(fit_and_size(state.output.prediction, state.output.target)[1])

    engine.run(batches(), max_epochs=2)
    plain.run(batches(), max_epochs=2)
    assert torch.equal(model.weight, twin.weight)
    assert not any(row["fit"].requires_grad for row in rows)
    if "precision" not in arguments:
        assert [(row["fit"], row["size"]) for row in rows] == [(m["fit"], m["size"]) for m in made]


def test_a_mapping_with_the_loss_is_the_same_as_a_pair():
    engine, model = build(fit_and_size)
    other, twin = build(lambda *pair: {"loss": alone(*pair), **fit_and_size(*pair)[1]})
    rows, others = rows_of(engine), rows_of(other)
    engine.run(batches(), max_epochs=2)
    other.run(batches(), max_epochs=2)
    assert rows == others
    assert torch.equal(model.weight, twin.weight)


def test_an_evaluation_has_the_means_over_samples_under_its_name():
    engine, model = build(fit_and_size)
    engine.add(Validate(batches(), name="val"))
    state = engine.run(batches(), max_epochs=1)
    with torch.no_grad():
        each = [(len(x), fit_and_size(model(x), y)[1]) for x, y in batches()]
    for name in ("fit", "size"):
        total = torch.zeros((), dtype=torch.float64)
        for number, parts in each:
            total = torch.add(total, parts[name], alpha=number)
        assert state.metrics[f"val/{name}"] == total / sum(SIZES)


def test_a_part_that_is_the_loss_is_the_loss_with_every_argument():
    def doubled(output, target):
        loss = mse_loss(output, target)
        return loss, {"same": loss}

    class Sum(torch.nn.MSELoss):
        def forward(self, output, target):
            loss = super().forward(output, target)
            return loss, {"same": loss}

    count = {"weight": lambda output: (output.target > 0).sum()}
    for loss_fn, arguments in (
        (doubled, {"split": 2}),
        (doubled, {"split": 2, **count}),
        (doubled, count),
        (doubled, {"compile": {"backend": "eager"}}),
        (Sum(reduction="sum"), {"weight": lambda output: output.target.numel()}),
        (Sum(reduction="sum"), {"weight": lambda output: output.target.numel(), "split": 3}),
        (Sum(reduction="sum"), {"weight": lambda output: 0}),
    ):
        engine, _ = build(loss_fn, **arguments)
        rows = rows_of(engine)
        engine.run(batches(), max_epochs=1)
        found = engine.evaluate(batches()).metrics
        assert all(torch.equal(row["same"], row["loss"]) for row in rows)
        assert torch.equal(found["same"].nan_to_num(), found["loss"].nan_to_num())


def test_a_batch_whose_loss_is_none_counts_for_no_part():
    def some(output, target):
        loss, parts = fit_and_size(output, target)
        return (None if len(output) == 3 else loss), parts

    engine, _ = build(some)
    whole, _ = build(fit_and_size)
    assert engine.evaluate(batches()).metrics == whole.evaluate(batches()[:2]).metrics
    assert engine.run(batches(), max_epochs=1).step == 2


def test_a_resumed_run_has_the_same_parts(tmp_path):
    def run(name, epochs):
        engine, _ = build(fit_and_size)
        engine.add(Validate(batches()), Checkpoint(tmp_path / name, resume=True))
        return engine.run(batches(), max_epochs=epochs).metrics

    run("cut", 1)
    assert run("cut", 3) == run("whole", 3)


@pytest.mark.parametrize("name", ["loss", "lr", "grad_norm", "spikes", "val/fit", ""])
def test_a_name_that_is_taken_is_refused(name):
    engine, _ = build(lambda *pair: (alone(*pair), {name: 1.0}))
    with pytest.raises(ValueError, match="give another"):
        engine.run(batches(), max_epochs=1)


def own(state):
    state.metrics["fit"] = 1.0


def averages():
    return Metrics({"fit": mse_loss})


@pytest.mark.parametrize(
    ("attach", "where"),
    [
        (lambda engine: engine.on(Events.ITERATION_COMPLETED)(own), "own"),
        (lambda engine: engine.on(Events.ITERATION_STARTED)(own), "engine.process"),
        (lambda engine: engine.on(Events.STEP_COMPLETED(at=5))(own), "own"),
        (lambda engine: engine.on(Events.COMPLETED)(own), "own"),
        (lambda engine: engine.add(averages()), "Metrics.compute"),
    ],
    ids=["each iteration", "before", "later", "at the end", "handler"],
)
def test_a_name_that_something_else_writes_too_is_an_error_in_the_second_write(attach, where):
    engine, _ = build(fit_and_size)
    attach(engine)
    with pytest.raises(ValueError, match="'fit' is a part of the loss in this run") as caught:
        engine.run(batches(), max_epochs=2)
    assert '"loss_fit"' in str(caught.value)
    assert any(where in note or "process function" in note for note in caught.value.__notes__)


def test_a_handler_that_writes_with_its_rows_meets_a_part_of_its_name():
    engine, _ = build(lambda *pair: (alone(*pair), {"step_time": 1.0}))
    engine.add(Throughput(), History(when=Events.ITERATION_COMPLETED(every=2)))
    with pytest.raises(ValueError, match="'step_time' is a part of the loss") as caught:
        engine.run(batches(), max_epochs=1)
    assert "Throughput.write" in caught.value.__notes__[0]


def test_an_evaluation_whose_metric_has_the_name_of_a_part_is_refused():
    engine, _ = build(fit_and_size)
    engine.add(Metrics({"size": mse_loss}, training=False), Validate(batches()))
    with pytest.raises(ValueError, match="'size' is a part of the loss"):
        engine.run(batches(), max_epochs=1)


def test_a_part_keeps_its_name_after_a_resume(tmp_path):
    def run(epochs, *handlers):
        engine, _ = build(fit_and_size)
        engine.add(Checkpoint(tmp_path, resume=True), *handlers)
        return engine.run(batches(), max_epochs=epochs)

    run(1)
    assert run(2).iteration == 6
    with pytest.raises(ValueError, match="'fit' is a part of the loss"):
        run(3, averages())


def test_a_name_is_free_where_no_batch_has_the_part():
    engine, _ = build(alone)
    engine.on(Events.ITERATION_COMPLETED)(own)
    assert engine.run(batches(), max_epochs=1).metrics["fit"] == 1.0


def test_a_value_from_before_the_first_batch_does_not_take_the_name():
    engine, _ = build(fit_and_size)
    engine.on(Events.STARTED)(own)
    assert engine.run(batches(), max_epochs=1).metrics["fit"] != 1.0


def test_a_step_that_is_tried_again_writes_its_parts_again():
    def sometimes(output, target):
        loss, parts = fit_and_size(output, target)
        calls.append(len(calls))
        return loss * (torch.nan if len(calls) == 2 else 1.0), parts

    calls = []
    engine, _ = build(sometimes)
    state = engine.add(NonFiniteGuard("retry")).run(batches(), max_epochs=1)
    assert len(calls) > state.step


def test_a_mean_of_a_part_is_written_beside_it_and_is_that_of_an_evaluation():
    engine, _ = build(fit_and_size)
    engine.add(Average("fit"), Validate(batches()))
    plain, _ = build(fit_and_size)
    plain.add(Validate(batches()))
    metrics = engine.run(batches(), max_epochs=2).metrics
    expected = plain.run(batches(), max_epochs=2).metrics
    assert metrics["val/fit"].item() == pytest.approx(expected["val/fit"].item(), rel=1e-15)
    assert metrics["fit/epoch"] != metrics["fit"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda loss: (loss, {"fit": torch.ones(2)}), "needs one real number"),
        (lambda loss: (loss, {"fit": None}), "needs one number"),
        (lambda loss: (loss, {3: loss}), "needs a string"),
        (lambda loss: (loss, loss), "needs a scalar tensor, a pair"),
        (lambda loss: {"fit": loss}, "without a 'loss'"),
    ],
    ids=["shape", "none", "name", "tuple", "lacking"],
)
def test_what_is_no_loss_in_parts_is_refused(returned, message):
    engine, _ = build(lambda *pair: returned(alone(*pair)))
    with pytest.raises((TypeError, ValueError), match=message):
        engine.run(batches(), max_epochs=1)


def test_a_loss_function_of_three_is_given_the_batch():
    def of_batch(output, target, batch):
        return alone(output, target) * batch[0].abs().mean(), {"first": batch[0][0, 0]}

    engine, _ = build(of_batch)
    rows = rows_of(engine)
    engine.run(batches(), max_epochs=1)
    assert [row["first"] for row in rows] == [x[0, 0] for x, _ in batches()]
    assert "first" in engine.evaluate(batches()).metrics

    model = torch.nn.Linear(3, 1).double()
    update = Update(torch.optim.LBFGS(model.parameters()), model=model)
    assert supervised(model, update, of_batch).run(batches(), max_epochs=1).step == 3
    for arguments in ({"split": 2}, {"compile": True}):
        with pytest.raises(ValueError, match="does not go with a loss_fn of output, target and"):
            build(of_batch, **arguments)


def test_a_default_is_no_third_argument():
    engine, _ = build(lambda output, target, scale=1.0: alone(output, target) * scale)
    assert engine.run(batches(), max_epochs=1).step == 3


@pytest.mark.parametrize(
    "loss_fn", [lambda output: output, lambda a, b, c, d: a], ids=["one", "four"]
)
def test_another_number_of_arguments_is_refused_with_the_three_forms(loss_fn):
    with pytest.raises(TypeError, match=r"loss_fn\(output, target, batch\), or none at all"):
        build(loss_fn)


MEANS_ON_RANKS = """
import ignite.distributed as idist
import torch
from torch.nn.functional import mse_loss
from camshaft import ranks, supervised

idist.initialize("gloo")

model = torch.nn.Linear(3, 1)
torch.nn.init.ones_(model.weight), torch.nn.init.zeros_(model.bias)


def loss_fn(output, target):
    loss = mse_loss(output, target)
    return loss, {"same": loss} if ranks.rank() or len(output) > 1 else {}


own = [(torch.full((n, 3), float(n)), torch.zeros(n, 1)) for n in ((4, 1), (2,))[ranks.rank()]]
metrics = supervised(model, None, loss_fn).evaluate(own).metrics
print("MEANS", float(metrics["loss"]), float(metrics["same"]))
"""


def test_ranks_have_the_mean_over_all_samples(processes):
    squares = {n: (3.0 * n) ** 2 for n in (4, 2, 1)}
    loss = (4 * squares[4] + squares[1] + 2 * squares[2]) / 7
    same = (4 * squares[4] + 2 * squares[2]) / 6
    for result in processes.run_ranks(2, MEANS_ON_RANKS):
        assert f"MEANS {loss} {same}" in result.stdout


MEANS_OF_WRAPPED = """
import sys
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from camshaft import ranks, supervised
from camshaft.handlers import Validate

init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
if sys.argv[1] == "ddp":
    model = DistributedDataParallel(model)
elif ranks.world_size() > 1:
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))


def loss_fn(output, target):
    kept = target > 0
    fit, size = ((output - target).square() * kept).sum() / kept.sum(), (output * kept).sum()
    return fit + size / kept.sum(), {"fit": fit, "size": size / kept.sum()}


generator = torch.Generator().manual_seed(1)
options = {"generator": generator, "dtype": torch.float64}
batches = [(torch.randn(n, 3, **options), torch.randn(n, 1, **options)) for n in (6, 4, 6, 2)]
own = batches[ranks.rank() :: ranks.world_size()]
weight = {"samples": None, "targets": lambda output: (output.target > 0).sum()}[sys.argv[2]]
engine = supervised(model, torch.optim.SGD(model.parameters(), lr=0.0), loss_fn, weight=weight)
metrics = engine.add(Validate(own)).run(own, max_epochs=1).metrics
for name in ("loss", "fit", "size"):
    print("MEAN", name, f"{float(metrics['val/' + name]):.12f}")
destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", ["ddp", "fsdp2"])
@pytest.mark.parametrize("weight", ["samples", "targets"])
def test_wrapped_models_on_two_ranks_have_the_means_of_one_process(processes, wrapper, weight):
    (alone,) = processes.run_ranks(1, MEANS_OF_WRAPPED, wrapper, weight)
    means = [line for line in alone.stdout.splitlines() if line.startswith("MEAN")]
    assert len(means) == 3
    for result in processes.run_ranks(2, MEANS_OF_WRAPPED, wrapper, weight):
        assert [each for each in result.stdout.splitlines() if each.startswith("MEAN")] == means
