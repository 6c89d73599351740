"""What EMA and SWA have in common."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Engine, Events, Update, supervised
from camshaft.handlers import (
    EMA,
    SWA,
    Checkpoint,
    Export,
    JSONLines,
    Metrics,
    RestoreBest,
    Validate,
    best,
    checkpoints,
    latest,
)


class Net(nn.Module):
    """A BatchNorm, dropout, a mask of minus infinity and a count."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(8, 3)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    def forward(self, input):
        return self.last(self.drop(self.norm(self.first(input))))


def build(*handlers, seed=0, wrap=lambda model: model, **arguments):
    torch.manual_seed(seed)
    model = Net()
    data = TensorDataset(torch.randn(20, 4), torch.randint(3, (20,)))
    loader = DataLoader(data, 4, shuffle=True)
    engine = supervised(
        wrap(model),
        torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
        nn.functional.cross_entropy,
        **arguments,
    )
    return engine.add(*handlers), loader


def state_of(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize(
    ("handler", "function"),
    [
        (EMA(0.9, warmup=False, buffers=False), get_ema_multi_avg_fn(0.9)),
        (SWA(when=Events.STEP_COMPLETED, buffers=False, name="ema"), get_swa_multi_avg_fn()),
    ],
    ids=["EMA", "SWA"],
)
def test_the_average_is_that_of_torchs_averaged_model_to_the_last_bit(handler, function):
    engine, loader = build(handler)
    expected = AveragedModel(engine.objects["model"], multi_avg_fn=function)
    engine.on(Events.STEP_COMPLETED)(lambda s: expected.update_parameters(engine.objects["model"]))
    engine.run(loader, max_epochs=3)
    assert equal(engine.objects["ema"].state_dict(), expected.module.state_dict())
    assert not equal(engine.objects["ema"].state_dict(), engine.objects["model"].state_dict())


def test_running_statistics_are_averaged_too_and_neither_counts_nor_masks_of_infinity():
    engine, loader = build(EMA(0.9, warmup=False), EMA(0.9, buffers=False, name="copied"))
    seen = []
    engine.on(Events.STEP_COMPLETED)(
        lambda s: seen.append(engine.objects["model"].norm.running_mean.clone())
    )
    engine.run(loader, max_iterations=2)
    own, ema, copied = (engine.objects[name] for name in ("model", "ema", "copied"))
    assert torch.equal(ema.norm.running_mean, torch.lerp(seen[0], seen[1], 1 - 0.9))
    assert torch.equal(copied.norm.running_mean, own.norm.running_mean)
    assert ema.norm.num_batches_tracked == own.norm.num_batches_tracked == 2
    assert torch.equal(ema.mask, own.mask)


def test_training_does_not_notice_it():
    def weights(*handlers):
        engine, loader = build(*handlers)
        engine.run(loader, max_epochs=2)
        return state_of(engine.objects["model"])

    evaluated = Validate(list(build()[1]), weights="ema", when=Events.ITERATION_COMPLETED(every=2))
    assert equal(weights(), weights(EMA(), SWA(), evaluated))


def test_only_performed_steps_count_and_a_trigger_chooses_among_them():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    weight = nn.Linear(1, 1, bias=False)
    update = Update(torch.optim.SGD(weight.parameters(), 1.0), scaler=scaler, accumulate=2)
    engine = Engine(
        lambda state, batch: update(state, weight(torch.ones(1)).sum() * batch),
        objects={"model": weight},
    )
    calls = []
    for name, when in {
        "each": Events.STEP_COMPLETED,
        "late": Events.STEP_COMPLETED(after=1),
    }.items():
        handler = EMA(when=when, name=name)
        engine.add(handler)
        engine.on(when)(lambda state, name=name: calls.append((name, state.iteration)))
    state = engine.run([1.0, 1.0, float("inf"), 1.0, 1.0, 1.0], max_epochs=1)
    assert calls == [("each", 2), ("each", 6), ("late", 6)]
    assert {n: m.count for n, m in state.memory.saved.items() if n[:3] == "EMA"} == {
        "EMA(each)": 2,
        "EMA(late)": 1,
    }
    assert torch.equal(engine.objects["late"].weight, weight.weight)


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("handler", [EMA(), SWA(when=Events.STEP_COMPLETED)], ids=["EMA", "SWA"])
def test_an_update_is_two_calls_over_all_weights_and_reads_nothing_back(handler):
    engine, loader = build(handler)
    seen = []

    @engine.on(Events.ITERATION_COMPLETED(after=2))
    def look(state):
        with Seen() as mode:
            handler.update(state)
        seen.append([name for name in mode.names if name != "detach"])

    engine.run(loader, max_iterations=4)
    assert seen == [["_foreach_lerp_", "_foreach_copy_"]] * 2  # buffers of integers are copied


def test_weights_of_16_bits_have_an_average_that_moves():
    torch.manual_seed(0)
    model = nn.Linear(1, 1, bias=False).bfloat16()
    nn.init.constant_(model.weight, 1.0)
    engine = Engine(
        lambda state, batch: state.fire(Events.STEP_COMPLETED), objects={"model": model}
    )
    engine.add(EMA(0.999, warmup=False))

    @engine.on(Events.ITERATION_COMPLETED(at=1))
    def move(state):
        model.weight.data.fill_(1.01)

    engine.run(range(50), max_epochs=1)
    assert engine.objects["ema"].weight.item() > 1.0003


@pytest.mark.quick(left=2)
@pytest.mark.parametrize("left", [1, 3, 5, 7])
def test_a_resumed_average_is_the_one_of_a_run_that_was_never_left(tmp_path, left):
    def train(directory, limit, seed):
        handlers = EMA(0.9), SWA(when=Events.STEP_COMPLETED(every=2, after=2))
        engine, loader = build(*handlers, seed=0)
        if seed:  # what a new process would make differs until it is loaded
            torch.manual_seed(seed)
            for name in ("ema", "swa"):
                for parameter in engine.objects[name].parameters():
                    nn.init.normal_(parameter)
        engine.add(
            Validate(loader, name="ema", weights="ema"),
            Checkpoint(directory, resume=True),
            JSONLines(directory / "rows.jsonl", when=Events.STEP_COMPLETED),
        )
        ids = [id(p) for p in engine.objects["ema"].parameters()]
        engine.run(loader, max_epochs=None if limit else 2, max_iterations=limit)
        assert [id(p) for p in engine.objects["ema"].parameters()] == ids
        return [state_of(engine.objects[name]) for name in ("model", "ema", "swa")]

    expected = train(tmp_path / "whole", None, 0)
    train(tmp_path / "left", left, 0)
    resumed = train(tmp_path / "left", None, 5)
    assert all(map(equal, resumed, expected))
    assert not equal(expected[1], expected[0])


def test_until_its_first_update_it_is_what_the_run_began_with_after_a_resume_too(tmp_path):
    def train(limit):
        engine, loader = build(SWA(when=Events.EPOCH_COMPLETED), Checkpoint(tmp_path, resume=True))
        began = state_of(engine.objects["model"])
        engine.run(loader, max_iterations=limit)
        return began, state_of(engine.objects["swa"])

    train(2)
    began, average = train(3)
    assert equal(average, began)


def test_the_best_average_is_exported_under_the_plain_names_of_the_weights(tmp_path):
    class Accuracy:
        """As given, one after the other, for the average; the model's own is always the best."""

        given = iter([0.2, 0.9, 0.5])

        def reset(self):
            pass

        def update(self, prediction, target):
            pass

        def compute(self):
            return next(type(self).given)

    engine, loader = build(EMA(0.9))
    seen = []
    engine.add(
        Metrics({"accuracy": Accuracy()}, training=False),
        Validate(list(loader), name="ema", weights="ema"),
        Export(tmp_path, object="ema", keep=best(1, "ema/accuracy", mode="max")),
    )
    engine.on(Events.EPOCH_COMPLETED)(lambda s: seen.append(state_of(engine.objects["ema"])))
    engine.run(loader, max_epochs=3)
    (saved,) = checkpoints(tmp_path)
    assert equal(dict(saved.state_dict("ema")), seen[1])
    engine.objects["model"].load_state_dict(saved.state_dict("ema"))


def test_the_average_is_of_the_module_inside_its_wrappers_and_its_keys_are_clean(tmp_path):
    engine, loader = build(
        EMA(), wrap=lambda model: torch.compile(nn.DataParallel(model), backend="eager")
    )
    engine.add(Checkpoint(tmp_path, keep=latest(1)))
    engine.run(loader, max_iterations=2)
    names = Net().state_dict().keys()
    assert engine.objects["ema"].state_dict().keys() == names
    assert checkpoints(tmp_path)[0].state_dict("ema").keys() == names


def test_an_average_that_is_new_in_a_resumed_run_begins_with_the_next_step(tmp_path):
    engine, loader = build(Checkpoint(tmp_path))
    engine.run(loader, max_epochs=1)
    handler = EMA(0.9)
    engine, loader = build(handler, Checkpoint(tmp_path, resume=True, override=["ema"]), seed=3)
    started = []
    engine.on(Events.STARTED)(
        lambda s: started.append(
            equal(*map(state_of, [engine.objects["ema"], engine.objects["model"]]))
        )
    )
    engine.run(loader, max_iterations=6)
    assert started == [True]
    assert equal(engine.objects["ema"].state_dict(), engine.objects["model"].state_dict())


def test_each_run_begins_an_average_of_its_own():
    engine, loader = build(EMA(0.9))
    engine.run(loader, max_epochs=1)
    state = engine.run(loader, max_iterations=1)
    assert equal(engine.objects["ema"].state_dict(), engine.objects["model"].state_dict())
    engine.run(loader, max_iterations=2, state=state)
    assert not equal(engine.objects["ema"].state_dict(), engine.objects["model"].state_dict())


def test_two_of_one_name_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"object 'ema' already.*EMA\(\.\.\., name='slow_ema'\)"):
        build(EMA(), EMA(0.99))
    engine, _ = build(EMA(), EMA(0.99, name="slow_ema"))
    assert list(engine.objects) == ["model", "optimizer", "ema", "slow_ema"]


def test_a_model_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match=r"EMA\(object='generator'\).* its modules are 'model'\."):
        build(EMA(object="generator"))


def test_an_average_is_updated_before_it_is_evaluated_or_refused():
    with pytest.raises(ValueError, match=r"Validate\(swa\) evaluates 'swa' .* attach SWA first"):
        build(Validate([], name="swa", weights="swa"), SWA())
    with pytest.raises(ValueError, match="attach EMA first"):
        build(Validate([], name="ema", weights={"model": "ema"}), EMA(when=Events.EPOCH_COMPLETED))
    with pytest.raises(ValueError, match="attach EMA first"):
        build(Validate([], name="ema", when=Events.STARTED, weights="ema"), EMA())
    build(
        Validate([], name="swa", weights="ema"), EMA(), SWA()
    )  # steps come before the epoch's end
    build(RestoreBest("loss", weights="swa"), SWA())  # looks behind all that measures


def test_an_exception_in_an_evaluation_of_the_average_leaves_the_raw_weights_and_modes():
    engine, loader = build(EMA(0.5))
    model = engine.objects["model"]
    model.norm.eval()
    before = []

    @engine.evaluation.on(Events.ITERATION_COMPLETED(at=2))
    def fail(state):
        assert not equal(model.state_dict(), before[0])
        raise ZeroDivisionError

    @engine.on(Events.ITERATION_COMPLETED(at=3))
    def evaluate(state):
        before.append(state_of(model))
        before.append(state_of(engine.objects["ema"]))
        with pytest.raises(ZeroDivisionError):
            engine.evaluate(loader, weights="ema", parent=state)
        assert equal(state_of(model), before[0])
        assert equal(state_of(engine.objects["ema"]), before[1])
        assert model.training
        assert not model.norm.training

    engine.run(loader, max_epochs=1)
    assert len(before) == 2


def test_evaluating_the_average_compiles_nothing_anew():
    compiled, counts = [], []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    engine, loader = build(EMA(), wrap=lambda model: torch.compile(model, backend=backend))
    engine.add(Validate(loader, name="val"), Validate(loader, name="ema", weights="ema"))
    engine.on(Events.EPOCH_COMPLETED)(lambda state: counts.append(len(compiled)))
    engine.run(loader, max_epochs=3)
    assert counts == [counts[0]] * 3
    assert counts[0] > 0
