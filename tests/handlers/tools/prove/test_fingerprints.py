"""Fingerprints of iterations: the same in a loop by hand, after a kill, and on several ranks."""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import (
    EMA,
    ClipGradNorm,
    Fingerprints,
    JSONLines,
    LRSchedule,
    Metrics,
    Validate,
)
from camshaft.handlers.tools.prove import compare, mark_of


def parts():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
    model = nn.Sequential(
        nn.Linear(4, 8), nn.Dropout(0.2), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)
    )
    return data, model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def loader_of(data):
    return DataLoader(data, 8, shuffle=True)


def loop(path, *, accumulate=1, scaler=None, clip=1.0, at=None, epochs=2, validate=None):
    """A training loop by hand; `at` is called in each batch, before the step."""
    data, model, optimizer = parts()
    scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    fingerprint = Fingerprints(path).by_hand(model)
    number = 0
    for _ in range(epochs):
        model.train()
        loader = loader_of(data)
        for place, (inputs, targets) in enumerate(loader, 1):
            number += 1
            with torch.autocast("cpu", torch.float16) if scaler.is_enabled() else nullcontext():
                loss = mse_loss(model(inputs), targets)
            scaler.scale(loss / accumulate).backward()
            is_whole = place % accumulate == 0
            if is_whole:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), clip)
                if at is not None:
                    at(number, model, optimizer)
                before = scaler.get_scale()
                scaler.step(optimizer)
                scaler.update()
                if scaler.get_scale() >= before:
                    scheduler.step()
            fingerprint((inputs, targets), loss)
            if is_whole:
                optimizer.zero_grad()
        if validate is not None:
            validate(data, model)
    return model


def run(path, *handlers, accumulate=1, scaler=None, when=None, epochs=2):
    """The same by an engine."""
    data, model, optimizer = parts()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    update = Update(optimizer, model=model, accumulate=accumulate, scaler=scaler)
    engine = supervised(model, update, mse_loss, precision="fp16" if scaler else "fp32")
    engine.add(ClipGradNorm(1.0), LRSchedule(scheduler), *handlers)
    if path is not None:
        engine.add(Fingerprints(path, when=when or Events.ITERATION_STARTED))
    engine.run(loader_of(data), max_epochs=epochs)
    return model


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def answer(capsys, *arguments, **options):
    """The exit code of a comparison, and what it says to programs."""
    code = compare(*arguments, as_json=True, **options)
    return code, json.loads(capsys.readouterr().out)


def test_a_loop_by_hand_and_an_engine_write_the_same_file(tmp_path):
    loop(tmp_path / "old.jsonl")
    run(tmp_path / "new.jsonl")
    assert (tmp_path / "old.jsonl").read_bytes() == (tmp_path / "new.jsonl").read_bytes()
    rows = rows_of(tmp_path / "new.jsonl")
    assert [row["iteration"] for row in rows] == [*range(1, 11)]
    assert rows[0]["weights"].keys() >= {"0.weight", "2.running_mean", "4.bias"}
    assert rows[0]["gradients"].keys() == {
        f"{n}.{w}" for n in (0, 2, 4) for w in ("weight", "bias")
    }


def test_gradients_are_those_that_the_optimizer_has_left(tmp_path, capsys):
    """Nesterov's momentum of many tensors at once adds to the gradients in place."""
    data, _, _ = parts()
    for way in ("old", "new"):
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(
            model.parameters(), 0.1, momentum=0.9, nesterov=True, foreach=True
        )
        if way == "new":
            engine = supervised(model, optimizer, mse_loss).add(Fingerprints(tmp_path / way))
            engine.run(loader_of(data), max_epochs=1)
            continue
        fingerprint = Fingerprints(tmp_path / way).by_hand(model)
        for inputs, targets in loader_of(data):
            optimizer.zero_grad()
            loss = mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            fingerprint((inputs, targets), loss)
    assert answer(capsys, tmp_path / "old", tmp_path / "new")[0] == 0


def test_a_script_that_changes_its_directory_goes_on_with_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fingerprint = Fingerprints("a.jsonl").by_hand(nn.Linear(1, 1))
    fingerprint(torch.ones(1), loss=0.5)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    fingerprint(torch.ones(1), loss=0.5)
    assert len(rows_of(tmp_path / "a.jsonl")) == 2


def test_other_handlers_do_not_matter_not_even_an_average_of_the_weights(tmp_path):
    data, _, _ = parts()
    run(tmp_path / "a.jsonl")
    error = nn.L1Loss()  # a module without weights
    others = (Validate(DataLoader(data, 20)), EMA(0.9), Metrics({"error": error}))
    run(tmp_path / "b.jsonl", *others, JSONLines(tmp_path / "rows.jsonl"))
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_in_a_window_of_two_batches_gradients_are_compared_where_a_step_is_made(tmp_path, capsys):
    loop(tmp_path / "old.jsonl", accumulate=2, epochs=1)
    run(tmp_path / "new.jsonl", accumulate=2, epochs=1)
    code, found = answer(capsys, tmp_path / "old.jsonl", tmp_path / "new.jsonl")
    # The loop never makes a step of its last window, which has one batch of five.
    assert (code, found["first"]) == (1, "gradients")
    assert found["differences"]["gradients"]["iteration"] == 5
    assert found["not_compared"]["gradients"] == 2  # of the first batch of each window


def test_gradients_of_float16_are_unscaled_and_a_skipped_step_has_none(tmp_path, capsys):
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**19, growth_interval=2) for _ in "ab"]
    loop(tmp_path / "old.jsonl", scaler=scalers[0], epochs=4)
    run(tmp_path / "new.jsonl", scaler=scalers[1], epochs=4)
    code, found = answer(capsys, tmp_path / "old.jsonl", tmp_path / "new.jsonl")
    skipped = [row for row in rows_of(tmp_path / "new.jsonl") if not row["gradients"]]
    assert (code, found["first"]) == (0, None)
    assert 3 < len(skipped) < 17
    assert found["not_compared"]["gradients"] == len(skipped)


def test_a_run_is_the_same_with_and_without_it(tmp_path):
    with_it, without = run(tmp_path / "a.jsonl").state_dict(), run(None).state_dict()
    assert all(torch.equal(with_it[name], without[name]) for name in without)
    states = []
    for path in (tmp_path / "b.jsonl", None):
        run(path)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_a_run_that_goes_on_elsewhere_begins_a_file_there(tmp_path, capsys):
    data, model, optimizer = parts()
    engine = supervised(model, optimizer, mse_loss).add(Fingerprints(tmp_path / "a.jsonl"))
    whole = engine.run(loader_of(data), max_epochs=2)
    assert whole.iteration == 10
    data, model, optimizer = parts()
    engine = supervised(model, optimizer, mse_loss)
    state = engine.run(loader_of(data), max_epochs=1)
    engine.add(Fingerprints(tmp_path / "b.jsonl"))
    engine.run(loader_of(data), state=state, max_epochs=2)
    code, found = answer(capsys, tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert (code, found["compared"], found["not_compared"]["iterations"]) == (0, 5, 5)


def test_a_trigger_counts_iterations_in_a_run_and_in_a_loop(tmp_path):
    when = Events.ITERATION_STARTED(every=4) | Events.ITERATION_STARTED(at=1)
    run(tmp_path / "a.jsonl", when=when)
    _, model, _ = parts()
    fingerprint = Fingerprints(tmp_path / "b.jsonl", when=when).by_hand(model)
    for number in range(10):
        fingerprint(torch.tensor(number), loss=0.5)
    for name in "ab":
        assert [row["iteration"] for row in rows_of(tmp_path / f"{name}.jsonl")] == [1, 4, 8]


def test_a_loop_that_goes_on_says_how_many_batches_are_done(tmp_path):
    _, model, _ = parts()
    for done, count in ((0, 5), (3, 1)):
        fingerprint = Fingerprints(tmp_path / "a.jsonl").by_hand(model, done=done)
        for _ in range(count):
            fingerprint(torch.ones(1), loss=float(done))
    assert [(r["iteration"], r["loss"]["loss"]) for r in rows_of(tmp_path / "a.jsonl")] == [
        *((number, "0.0") for number in (1, 2, 3)),
        (4, "3.0"),
    ]


def test_a_step_of_your_own_has_a_loss_where_it_writes_one(tmp_path):
    _, model, optimizer = parts()

    def step(state, batch):
        optimizer.zero_grad()
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        if state.iteration == 1:
            state.metrics["loss"] = loss
        state.fire(Events.STEP_COMPLETED)

    objects = {"model": model, "optimizer": optimizer}
    engine = Engine(step, Fingerprints(tmp_path / "a.jsonl"), objects=objects)
    engine.run(torch.randn(3, 4, 4), max_epochs=1)
    assert [len(row["loss"]) for row in rows_of(tmp_path / "a.jsonl")] == [1, 0, 0]
    assert all(row["gradients"] for row in rows_of(tmp_path / "a.jsonl"))


def test_several_models_have_their_names_and_wrappers_have_none(tmp_path):
    _, model, _ = parts()
    wrapped = torch.compile(nn.DataParallel(model), backend="eager")
    one = Fingerprints(tmp_path / "one.jsonl").by_hand(wrapped)
    two = Fingerprints(tmp_path / "two.jsonl").by_hand({"a": model, "b": nn.Linear(1, 1)})
    for fingerprint in (one, two):
        fingerprint(torch.ones(1), loss=0.5)
    assert "0.weight" in rows_of(tmp_path / "one.jsonl")[0]["weights"]
    assert {"a.0.weight", "b.bias"} <= rows_of(tmp_path / "two.jsonl")[0]["weights"].keys()


@dataclass
class Sample:
    image: torch.Tensor
    text: str


@dataclass(slots=True)
class Slots:
    size: int


def jagged(*lengths):
    rows = [torch.ones(length) for length in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


NAN = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
SPARSE = torch.sparse_coo_tensor([[1, 1]], [1.0, 2.0], (3,), check_invariants=True)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (torch.ones(3), torch.ones(3), True),
        (torch.ones(3), torch.ones(3).double(), False),
        (torch.ones(4), torch.ones(2, 2), False),
        (torch.tensor(0.0), torch.tensor(-0.0), False),
        (NAN[0], NAN[0], True),
        (NAN[0], NAN[1], False),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16), True),
        (torch.ones(2, dtype=torch.bool), torch.tensor([True, False]), False),
        (torch.ones(4, 6).t(), torch.ones(6, 4), True),
        (torch.tensor([1j, 2]).conj(), torch.tensor([1j, 2]).conj().resolve_conj(), True),
        (torch.tensor([1j, 2]), torch.tensor([-1j, 2]), False),
        (SPARSE, SPARSE.coalesce(), True),
        (SPARSE, SPARSE * 2, False),
        (torch.zeros(0, 3), torch.zeros(3, 0), False),
        ({"a": torch.ones(1), "b": "cat"}, {"b": "cat", "a": torch.ones(1)}, True),
        ({"a": torch.ones(1), "b": "cat"}, {"a": torch.ones(1), "b": "dog"}, False),
        ([torch.ones(1), torch.zeros(1)], (torch.ones(1), torch.zeros(1)), True),
        (["one", "two"], ["two", "one"], False),
        (Sample(torch.ones(1), "a"), Sample(torch.zeros(1), "a"), False),
        (Sample(torch.ones(1), "a"), Sample(torch.ones(1), "a"), True),
        (np.ones(2), np.zeros(2), False),
        (object(), object(), True),  # nothing is known of it
        ("object at 0x1", "object at 0x2", False),
        (["object at 0x1"], ["object at 0x2"], False),
        (np.array(["a", None]), np.array(["b", None]), False),
        (np.array(["a" * 99, None]), np.array(["aa".replace("aa", "a" * 99), None]), True),
        (Slots(1), Slots(2), False),
        ({"a", "b"}, {"b", "a"}, True),
        ({"a", "b"}, {"a", "c"}, False),
        (jagged(2, 3), jagged(2, 3), True),
        (jagged(2, 3), jagged(3, 2), False),
        (None, 1, False),
        (SimpleNamespace(a=1), SimpleNamespace(a=2), False),
    ],
)
def test_a_batch_is_the_same_if_its_values_have_the_same_bits(
    tmp_path, capsys, one, other, is_same
):
    model = nn.Linear(1, 1)
    for name, batch in (("a", one), ("b", other)):
        Fingerprints(tmp_path / name).by_hand(model)(batch, loss=0.5)
    code, found = answer(capsys, tmp_path / "a", tmp_path / "b")
    assert (code == 0) is is_same
    assert found["first"] == (None if is_same else "batch")


RANKS = """
    import os, sys
    from pathlib import Path
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    from camshaft import ranks, seed_everything, supervised
    from camshaft.handlers import Fingerprints

    folder, way = Path(sys.argv[1]), sys.argv[2]

    def train(ddp, count):
        seed_everything(0)
        data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
        model = nn.Linear(4, 1)
        if ddp:
            model = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        sampler = DistributedSampler(data, count, ranks.rank(), shuffle=False)
        loader = DataLoader(data, 8 // count, sampler=sampler)
        loss_fn = nn.functional.mse_loss
        if way == "engine":
            engine = supervised(model, optimizer, loss_fn)
            engine.add(Fingerprints(folder / f"{way}-{count}.jsonl")).run(loader, max_epochs=1)
            return
        fingerprint = Fingerprints(folder / f"{way}-{count}.jsonl").by_hand(model)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), targets)
            loss.backward()
            optimizer.step()
            fingerprint([inputs, targets], loss)

    if "RANK" in os.environ:
        with ranks.process_group():
            train(ddp=True, count=2)
    else:
        train(ddp=False, count=1)
"""


def test_ranks_have_batches_of_their_own_and_weights_together(processes, tmp_path, capsys):
    for way in ("engine", "loop"):
        processes.run_ranks(2, RANKS, tmp_path, way)
    processes.run(RANKS, tmp_path, "engine")
    two = tmp_path / "engine-2.jsonl"
    assert two.read_bytes() == (tmp_path / "loop-2.jsonl").read_bytes()
    first = rows_of(two)[0]
    assert first["ranks"] == 2
    assert [*first["batch"]] == [f"rank {rank}: {number}" for rank in (0, 1) for number in (0, 1)]
    assert [*first["loss"]] == ["rank 0: loss", "rank 1: loss"]
    assert [*first["weights"]] == ["weight", "bias"]
    # On one rank the same samples are one batch, and sums are rounded in another order.
    code, found = answer(capsys, two, tmp_path / "engine-1.jsonl", rtol=1e-4)
    assert (code, found["compared"]) == (0, 4)
    left_out = dict.fromkeys(("batch", "generators", "loss"), 4)
    assert found["not_compared"] == {"iterations": 0} | left_out
    compare(two, tmp_path / "engine-1.jsonl", rtol=1e-4)
    assert "batch       not compared\n" in capsys.readouterr().out


SHARDS = """
    import os, sys
    from pathlib import Path
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from camshaft import ranks, supervised
    from camshaft.handlers import Fingerprints

    def train(path, shard):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 1))
        if shard:
            for each in model:
                fully_shard(each)
            fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.25)
        batch = (torch.ones(4, 4), torch.ones(4, 1))
        engine = supervised(model, optimizer, nn.functional.mse_loss)
        engine.add(Fingerprints(path)).run([batch] * 3, max_epochs=1)

    path = Path(sys.argv[1])
    if "RANK" in os.environ:
        with ranks.process_group():
            train(path, shard=True)
    else:
        train(path, shard=False)
"""


def test_a_sharded_model_has_the_fingerprints_of_the_whole_one(processes, tmp_path, capsys):
    processes.run_ranks(2, SHARDS, tmp_path / "two.jsonl")
    processes.run(SHARDS, tmp_path / "one.jsonl")
    code, found = answer(capsys, tmp_path / "one.jsonl", tmp_path / "two.jsonl")
    assert (code, found["compared"]) == (0, 3)  # both ranks have the same batch
    assert found["not_compared"]["batch"] == 3


@pytest.mark.parametrize(
    "when",
    [
        Events.ITERATION_COMPLETED(every=100),
        Events.STEP_COMPLETED,
        Events.ITERATION_STARTED(every=100, last=True),
        Events.ITERATION_STARTED | Events.EPOCH_STARTED,
        Events.ITERATION_STARTED(seconds=60),
        Events.ITERATION_STARTED(where=lambda state: True),
    ],
)
def test_another_trigger_is_refused_with_what_to_write(when):
    with pytest.raises(ValueError, match=r"it needs Events.ITERATION_STARTED, with every="):
        Fingerprints("a.jsonl", when=when)


def test_without_a_model_nothing_is_written_and_what_to_write_is_said(tmp_path):
    engine = Engine(lambda state, batch: None, Fingerprints(tmp_path / "a.jsonl"))
    with pytest.raises(ValueError, match=r"Engine\(\.\.\., objects=\{\"model\": model\}\)"):
        engine.run([1], max_epochs=1)
    with pytest.raises(ValueError, match=r"by_hand\(model\)"):
        Fingerprints(tmp_path / "a.jsonl").by_hand(nn.ReLU())
    assert not [*tmp_path.iterdir()]


def test_an_evaluation_and_a_rehearsal_write_nothing(tmp_path):
    data, model, optimizer = parts()
    engine = supervised(model, optimizer, mse_loss).add(Fingerprints(tmp_path / "a.jsonl"))
    engine.simulate(max_epochs=1, epoch_length=3)
    engine.evaluate(DataLoader(data, 20))
    assert not [*tmp_path.iterdir()]


def test_a_gradient_of_one_expanded_number_has_the_mark_of_its_value():
    marks = [mark_of(each) for each in (torch.ones(()).expand(1), torch.ones(1))]
    assert marks[0] == marks[1]
