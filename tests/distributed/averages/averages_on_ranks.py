"""Run on one, two or four ranks: averages and best weights of sharded models equal one process."""

import copy
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1]))
import checks
from models import FORMS, Net, batches, build, check, sharded, share, whole
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel
from torch.optim.swa_utils import update_bn

from camshaft import Events, ranks, supervised
from camshaft.engine.modules import is_spread, local
from camshaft.handlers import EMA, SWA, EarlyStopping, RestoreBest, Validate

FORM = "plain"


def validated(**options):
    return lambda data: Validate(data, **options)


def averaged(form):
    """All averages at once, evaluated where they are most easily spoilt."""
    rows = []
    engine, data, _ = build(
        form,
        EMA(0.9),
        EMA(0.5, warmup=False, buffers=False, name="fast"),
        SWA(),
        validated(name="val"),
        validated(name="ema", weights="ema", when=Events.ITERATION_COMPLETED(every=2)),
        validated(name="swa", weights="swa"),
        accumulate=2,
    )
    names = ("loss", "val/loss", "ema/loss", "swa/loss")

    @engine.on(Events.EPOCH_COMPLETED)
    def note(state):
        rows.append([float(state.metrics[name]) for name in names])

    engine.run(data, max_epochs=3)
    return engine, rows


def with_best(form):
    """The best weights of a rate that makes the last ones worse."""
    rows = []
    engine, data, _ = build(
        form, validated(), RestoreBest("val/loss"), EarlyStopping("val/loss", patience=2), lr=0.35
    )
    engine.on(Events.EPOCH_COMPLETED)(lambda s: rows.append(float(s.metrics["val/loss"])))
    state = engine.run(data, max_epochs=12)
    return engine, rows, state


@cache
def expected(make):
    """What one process gets; on ranks, each computes it alone."""
    with ranks.alone():
        return make("plain")


def averages_equal_those_of_one_process():
    engine, rows = averaged(FORM)
    wanted, wanted_rows = expected(averaged)
    assert engine.objects.keys() == wanted.objects.keys()
    for name in ("model", "ema", "fast", "swa"):
        check(whole(engine.objects[name]), whole(wanted.objects[name]))
    # The loss of an epoch is of this rank's samples; that of an evaluation is over all of them.
    for row, wanted_row in zip(rows, wanted_rows, strict=True):
        assert row[1:] == pytest.approx(wanted_row[1:], rel=0, abs=1e-12), (row, wanted_row)
    assert rows[-1][1] != rows[-1][2] != rows[-1][3]


def each_rank_holds_its_own_shards_alone():
    engine, _ = averaged(FORM)
    model, ema = engine.objects["model"], engine.objects["ema"]
    pairs = list(zip(model.parameters(), ema.parameters(), strict=True))
    assert all(is_spread(own) and is_spread(copy) for own, copy in pairs)
    assert [local(own).shape for own, _ in pairs] == [local(copy).shape for _, copy in pairs]
    assert ema.tied.weight is ema.head.weight


def an_update_sends_nothing():
    sent = []

    class Counted(EMA):
        def update(self, state):
            with CommDebugMode() as mode:
                super().update(state)
            sent.append(mode.get_total_counts())

    engine, data, _ = build(FORM, Counted(0.9))
    engine.run(data, max_epochs=2)
    assert len(sent) == 12
    assert not any(sent)


def an_evaluation_of_an_average_leaves_no_trace_in_training():
    handlers = (EMA(0.5), SWA(when=Events.STEP_COMPLETED))
    engine, data, _ = build(FORM, *handlers)
    engine.run(data, max_epochs=2)
    evaluated = [
        validated(name=name, weights=weights, when=Events.STEP_COMPLETED)
        for name, weights in {"own": {}, "ema": "ema", "swa": "swa"}.items()
    ]
    other, data, _ = build(FORM, *handlers, *evaluated)
    other.run(data, max_epochs=2)
    for name in ("model", "ema", "swa"):
        one, two = whole(engine.objects[name]), whole(other.objects[name])
        assert all(torch.equal(one[key], two[key]) for key in one)


def inside_using_the_model_computes_with_the_average_and_outside_with_its_own():
    engine, data, _ = build(FORM, EMA(0.5))
    engine.run(data, max_epochs=1)
    (model, ema), (x, _) = (engine.objects[n] for n in ("model", "ema")), batches()[0]
    alone = {}
    for name in ("model", "ema"):
        alone[name] = Net()
        alone[name].load_state_dict(whole(engine.objects[name]))
    model.eval()
    with torch.no_grad():
        before = model(x)  # the root keeps its whole weights
        with engine.using("ema"):
            inside = model(x)
            saved = engine.lent[model]
            assert torch.equal(local(saved["head.weight"]), local(ema.head.weight))
        after = model(x)
        torch.testing.assert_close(inside, alone["ema"].eval()(x), rtol=0, atol=1e-12)
        torch.testing.assert_close(before, alone["model"].eval()(x), rtol=0, atol=1e-12)
        assert torch.equal(before, after)
        assert not torch.equal(before, inside)


def statistics_for_the_mean_are_measured_over_the_batches_of_all_ranks():
    model = nn.Sequential(
        nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.1), nn.Linear(5, 3)
    ).double()
    expected = copy.deepcopy(model)
    model, number, count = sharded(model, FORM, {"0": ColwiseParallel(output_layouts=Replicate())})
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
    own = share(batches(), number, count)
    engine.add(SWA(when=Events.ITERATION_COMPLETED, batch_norm=own))
    drawn = []
    engine.on(Events.EPOCH_COMPLETED)(lambda s: drawn.append(torch.get_rng_state()))
    modes = [each.training for each in model.modules()]
    engine.run(own, max_epochs=1)
    assert torch.equal(torch.get_rng_state(), drawn[0])
    expected.load_state_dict(whole(engine.objects["swa"]))
    update_bn([batch for n in range(count) for batch in share(batches(), n, count)], expected)
    found, wanted = whole(engine.objects["swa"]), expected.state_dict()
    assert found.pop("1.num_batches_tracked") * count == wanted.pop("1.num_batches_tracked")
    check(found, wanted)
    assert modes == [each.training for each in model.modules()]
    statistics = whole(engine.objects["model"])["1.running_mean"]
    assert not torch.equal(statistics, wanted["1.running_mean"])


def the_best_weights_are_restored_and_a_longer_run_goes_on_from_the_last_ones():
    engine, rows, state = with_best(FORM)
    wanted, wanted_rows, wanted_state = expected(with_best)
    assert rows == pytest.approx(wanted_rows, rel=0, abs=1e-12)
    assert state.stop_reason == wanted_state.stop_reason
    assert 0 < rows.index(min(rows)) < len(rows) - 1, rows
    for name in ("model", "best"):
        check(whole(engine.objects[name]), whole(wanted.objects[name]))
    best = engine.objects["best"]
    assert {local(each).device.type for each in best.parameters()} == {"cpu"}
    assert engine.evaluate(build(FORM)[2]).metrics["loss"] == pytest.approx(min(rows), abs=1e-12)


def weights_of_one_process_load_into_an_average_and_those_of_another_mesh_too():
    engine, *_ = build(FORM, EMA(0.9))
    wanted = {name: each + 1 for name, each in whole(Net()).items()}
    engine.objects["ema"].load_state_dict(wanted)
    check(whole(engine.objects["ema"]), wanted)
    for form in FORMS[ranks.world_size()]:
        other, _, _ = sharded(Net(seed=3), form)
        engine.objects["ema"].load_state_dict(other.state_dict())
        check(whole(engine.objects["ema"]), whole(other))


def what_cannot_be_says_what_to_do():
    engine, data, _ = build(FORM, EMA(0.9))
    with pytest.raises(TypeError, match=r"with engine.using\('ema'\)"):
        engine.objects["ema"](data[0][0])
    model = Net()
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), nn.MSELoss())
    engine.add(EMA(0.9))
    sharded(model, FORM)
    with pytest.raises(ValueError, match=r"Shard the model .* before a handler"):
        engine.run(data, max_epochs=1)


with ranks.process_group("gloo"):
    for FORM in sys.argv[1:2] or FORMS[ranks.world_size()]:
        for each in checks.checks_of(globals())[: int(sys.argv[2]) if sys.argv[2:] else None]:
            each()
            print(f"rank {ranks.rank()}, {FORM}: {each.__name__}", flush=True)
