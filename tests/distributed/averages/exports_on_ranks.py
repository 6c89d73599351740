"""Run on one, two or four ranks: exports of sharded models are those of one process."""

import json
import resource
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1]))
import checks
from models import FORMS, Net, build, check, whole
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from camshaft import Events, Stage, ranks, supervised
from camshaft.handlers import EMA, Export, Validate, best, checkpoints

PLACE = Path(sys.argv[1])
FORM = "plain"


def exported(form, place):
    """The weights of the model and the best average, as files."""
    engine, data, validation = build(form, EMA(0.5))
    engine.add(
        Validate(validation, name="ema", weights="ema"),
        Export(place / "model"),
        Export(place / "ema", object="ema", keep=best(1, "ema/loss")),
    )
    engine.run(data, max_epochs=3)
    return engine


def of(directory):
    """The only export in a directory."""
    ranks.gathered(None)  # rank 0 has written it
    (saved,) = checkpoints(directory)
    return saved


def a_file_loads_into_the_plain_model_and_equals_one_process():
    place = PLACE / FORM
    engine = exported(FORM, place)
    other = place / f"alone-{ranks.rank()}"
    with ranks.alone():
        exported("plain", other)
    for name in ("model", "ema"):
        saved, wanted = of(place / name), of(other / name)
        file = saved.path / f"{name}.safetensors"
        assert saved.manifest.metrics.keys() == wanted.manifest.metrics.keys()
        assert {p.name for p in saved.path.iterdir()} == {p.name for p in wanted.path.iterdir()}
        check(load_file(file), load_file(wanted.path / file.name))
        Net().load_state_dict(load_file(file))
        check(saved.state_dict(name), load_file(file))
    found = load_file(of(place / "model").path / "model.safetensors")
    own = whole(engine.objects["model"])
    assert all(torch.equal(found[key], own[key]) for key in own)


def inside_using_each_is_exported_with_its_own_weights():
    places = {name: PLACE / f"{FORM} lent {name}" for name in ("model", "ema")}
    exports = [Export(place, object=name) for name, place in places.items()]
    engine, data, _ = build(FORM, EMA(0.5), *exports)

    @engine.on(Events.EPOCH_COMPLETED)
    def save(state):
        with engine.using("ema"):
            for export in exports:
                export.ask(state)
                export.save(state)
        for name, place in places.items():
            check(of(place).state_dict(name), whole(engine.objects[name]))

    engine.run(data, max_epochs=1)


def at_the_end(engine, rank, place, replacement):
    """Replace a function on one rank before the export."""
    patcher = patch(place, replacement)
    engine.on(Events.EPOCH_COMPLETED)(lambda s: patcher.start() if ranks.rank() == rank else None)
    engine.on(Events.CLOSED, stage=Stage.REPORT)(lambda s: patch.stopall())


def no_room(*_):
    raise OSError(28, "No space left on device")


def no_memory(*_):
    raise MemoryError("none left")


def a_failure_of_the_rank_that_writes_is_an_error_on_all():
    place = PLACE / f"{FORM} full"
    engine, data, _ = build(FORM, Export(place, retries=0))
    at_the_end(engine, 0, "os.fsync", no_room)
    told = "No space left" if ranks.rank() == 0 else "another rank could not export weights"
    with pytest.raises((OSError, RuntimeError), match=told):
        engine.run(data, max_epochs=1)
    ranks.gathered(None)
    assert not checkpoints(place)


def what_fails_once_is_tried_again_with_all_ranks():
    place = PLACE / f"{FORM} again"
    engine, data, _ = build(FORM, Export(place, retries=1))
    calls = []

    def fails_at_first(file):
        calls.append(file)
        return no_room() if len(calls) == 1 else None

    at_the_end(engine, 0, "os.fsync", fails_at_first)
    engine.run(data, max_epochs=1)
    check(of(place).state_dict("model"), whole(engine.objects["model"]))
    assert bool(calls) == (ranks.rank() == 0)


def a_failure_that_is_only_told_of_ends_no_rank():
    place = PLACE / f"{FORM} told"
    engine, data, _ = build(FORM, Export(place, retries=0, on_failure="warn"))
    at_the_end(engine, 0, "os.fsync", no_room)
    assert engine.run(data, max_epochs=1).stop_reason == "max_epochs"
    ranks.gathered(None)
    assert not checkpoints(place)


def a_failure_of_a_rank_that_sends_is_an_error_on_all():
    last = ranks.world_size() - 1
    place = PLACE / f"{FORM} memory"
    engine, data, _ = build(FORM, Export(place))
    at_the_end(engine, last, "torch.Tensor.cpu", no_memory)
    kind, told = (MemoryError, "none") if ranks.rank() == last else (RuntimeError, "another rank")
    with pytest.raises(kind, match=told):
        engine.run(data, max_epochs=1)
    ranks.gathered(None)
    assert not checkpoints(place)


def a_model_that_fails_on_one_rank_is_an_error_on_all():
    last = ranks.world_size() - 1
    engine, data, _ = build(FORM, Export(PLACE / f"{FORM} hook"))

    def fails(*_):
        raise ValueError("no weights today")

    if ranks.rank() == last:
        engine.objects["model"].register_state_dict_pre_hook(fails)
    kind = ValueError if ranks.rank() == last else RuntimeError
    with pytest.raises(kind, match="no weights today" if ranks.rank() == last else "another rank"):
        engine.run(data, max_epochs=1)


def rank_0_has_memory_for_one_whole_tensor_and_the_others_for_none():
    torch.manual_seed(0)
    size, count = 1024, 24  # 4 MiB each, 96 MiB in all
    ranks.data_parallel(init_device_mesh("cpu", (ranks.world_size(),)))  # no longer as by TP
    model = torch.nn.Sequential(*(torch.nn.Linear(size, size, bias=False) for _ in range(count)))
    for each in [*model, model]:
        fully_shard(each)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), torch.nn.MSELoss())
    engine.add(Export(PLACE / f"{FORM} large", when=Events.COMPLETED))
    before = []
    engine.on(Events.COMPLETED)(lambda s: before.append(peak()))
    engine.run([(torch.ones(1, size), torch.ones(1, size))], max_epochs=1)
    grown = peak() - before[0]
    print(json.dumps({"rank": ranks.rank(), "grown": grown}))
    room = 24 if ranks.rank() == 0 else 8
    assert grown < room * 2**20, f"{grown:,}"


def peak():
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


with ranks.process_group("gloo"):
    for FORM in sys.argv[2:] or FORMS[ranks.world_size()]:
        for each in checks.checks_of(globals()):
            each()
            print(f"rank {ranks.rank()}, {FORM}: {each.__name__}", flush=True)
