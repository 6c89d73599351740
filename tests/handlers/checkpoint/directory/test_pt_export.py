"""One file for others: plain torch reads it, and it appears whole or not at all."""

import pickletools
import resource
import zipfile
from collections import Counter, OrderedDict
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from camshaft import supervised
from camshaft.handlers import Checkpoint, LRSchedule, checkpoints, export_dcp
from camshaft.handlers.checkpoint.directory import Directory, Saved, stored_in
from camshaft.handlers.checkpoint.directory.contents import payload_of
from camshaft.handlers.checkpoint.directory.pt_export import portable
from camshaft.handlers.checkpoint.format import Manifest
from camshaft.handlers.checkpoint.save.snapshot import Snapshot, take

# What torch 2.4.0 takes of those that can come from here, read from its source.
TAKEN_BY_TORCH_2_4 = {
    *("collections OrderedDict", "collections Counter"),
    *("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3"),
    *(f"torch {name}Storage" for name in ("Float", "Double", "Half", "BFloat16", "Bool", "Byte")),
    *(f"torch {name}Storage" for name in ("Char", "Short", "Int", "Long", "ComplexFloat")),
    *("torch.storage UntypedStorage", "torch uint16", "torch uint32", "torch uint64"),
    *("torch float8_e4m3fn", "torch float8_e5m2"),
}
UNKNOWN_TO_TORCH_2_4 = {"BINBYTES", "SHORT_BINBYTES", "LONG4", "BINUNICODE8", "FROZENSET"}


def a_model():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.fixture
def trained(tmp_path):
    torch.manual_seed(0)
    model = a_model()
    optimizer = torch.optim.AdamW(model.parameters())
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    engine.add(LRSchedule(schedule), Checkpoint(tmp_path / "run"))
    engine.run([(torch.randn(5, 3), torch.arange(5) % 2)] * 4, max_epochs=1)
    saved = checkpoints(tmp_path / "run").latest()
    assert saved is not None
    return saved, model, optimizer


class Holder:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state


def saved_with(directory, **objects):
    held = {name: Holder(state) for name, state in objects.items()}
    return Directory(directory).write(
        take(held).streamed(),
        Manifest(iteration=7, metrics={"loss": 0.5}),
    )


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def test_the_whole_run_is_one_dict_that_plain_torch_reads(trained, tmp_path):
    saved, model, optimizer = trained
    assert saved.export(tmp_path / "new" / "run.pt") == tmp_path / "new" / "run.pt"
    content = torch.load(tmp_path / "new" / "run.pt", weights_only=True)
    assert equal(content["model"], dict(model.state_dict()))
    assert equal(content["optimizer"], optimizer.state_dict())
    assert (content["iteration"], content["step"], content["epoch"]) == (4, 4, 1)
    assert content["metrics"] == saved.manifest.metrics
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run.pt"]


def test_one_object_alone_loads_straight_into_such_an_object(trained, tmp_path):
    saved, model, _ = trained
    saved.export(str(tmp_path / "model.pt"), object="model")
    other = a_model()
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert equal(dict(other.state_dict()), dict(model.state_dict()))
    path = tmp_path / "model.safetensors"
    assert saved.export(path, object="model") == path
    assert equal(load_file(path), dict(model.state_dict()))


def test_a_file_that_is_made_of_tensors_of_another_has_the_size_that_is_told_before(trained):
    payload = payload_of(stored_in(trained[0].path / "model.safetensors"))
    assert payload.size == sum(len(each) for each in payload.pieces())


def test_the_state_of_one_object_is_one_call(trained):
    saved, model, optimizer = trained
    assert equal(saved.state_dict("model"), dict(model.state_dict()))
    assert equal(saved.state_dict("optimizer"), optimizer.state_dict())
    with pytest.raises(ValueError, match=r"no object 'modle'; its objects are: 'model', 'optimi"):
        saved.state_dict("modle")


def test_a_file_is_verified_before_it_is_used_and_others_are_not_read(trained, tmp_path):
    saved, model, _ = trained
    damaged = saved.path / "train.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xff")
    assert equal(saved.state_dict("model"), dict(model.state_dict()))
    for use in (lambda: saved.state_dict("optimizer"), lambda: saved.export(tmp_path / "run.pt")):
        with pytest.raises(ValueError, match=r"train\.safetensors is damaged"):
            use()
    assert not (tmp_path / "run.pt").exists()


STATE = {
    **{"none": None, "yes": True, "large": 2**1999, "text": "é" * 300, "inf": float("inf")},
    **{"pair": (1, [2.5, ()]), 3: OrderedDict(b=1, a=2), "counts": Counter("abca")},
    "tensors": {
        str(dtype): torch.zeros(2).to(dtype)
        for dtype in (
            *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool),
            *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64),
            *(torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2),
        )
    },
}


def test_every_value_a_file_takes_comes_back_as_it_was(tmp_path):
    saved_with(tmp_path, own=STATE).export(tmp_path / "own.pt", object="own")
    back = torch.load(tmp_path / "own.pt", weights_only=True)
    tensors = back.pop("tensors")
    assert back == {key: value for key, value in STATE.items() if key != "tensors"}
    assert [type(back[key]) for key in ("pair", 3, "counts")] == [tuple, OrderedDict, Counter]
    assert {name: str(tensor.dtype) for name, tensor in tensors.items()} == {
        name: name for name in STATE["tensors"]
    }


def test_a_file_holds_nothing_that_the_oldest_torch_would_refuse(tmp_path):
    saved_with(tmp_path, own=STATE).export(tmp_path / "own.pt")
    with zipfile.ZipFile(tmp_path / "own.pt") as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("data.pkl"))
        operations = list(pickletools.genops(archive.read(name)))
    named = {argument for operation, argument, _ in operations if operation.name == "GLOBAL"}
    assert named - TAKEN_BY_TORCH_2_4 == set()
    assert not UNKNOWN_TO_TORCH_2_4 & {operation.name for operation, _, _ in operations}


def test_arrays_become_tensors_and_numbers_of_numpy_those_of_python(tmp_path):
    state = {"mean": np.arange(3), "count": np.int64(3), "ratio": np.float32(0.5)}
    saved_with(tmp_path, own=state).export(tmp_path / "own.pt", object="own")
    back = torch.load(tmp_path / "own.pt", weights_only=True)
    assert equal(back, {"mean": torch.arange(3), "count": 3, "ratio": 0.5})
    assert [type(back[name]) for name in ("count", "ratio")] == [int, float]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({1, 2}, r"own\.deep\.1 is a builtins\.set, which torch"),
        (frozenset(), r"own\.deep\.1 is a builtins\.frozenset"),
        (b"", r"own\.deep\.1 is a builtins\.bytes"),
        ({b"key": 1}, r"own\.deep\.1\.<key> is a builtins\.bytes"),
        (-(2**2000), r"own\.deep\.1 is a very large integer"),
    ],
)
def test_what_such_a_file_cannot_hold_is_refused_by_name(tmp_path, value, says):
    saved = saved_with(tmp_path, own={"deep": [0, value]}, model={"weight": torch.ones(1)})
    with pytest.raises(TypeError, match=says):
        saved.export(tmp_path / "run.pt")
    assert not (tmp_path / "run.pt").exists()
    saved.export(tmp_path / "model.pt", object="model")


def test_an_object_that_is_called_like_a_number_of_the_run_can_be_exported_alone(tmp_path):
    saved = saved_with(tmp_path, metrics={"sum": 3})
    with pytest.raises(ValueError, match=r"called 'metrics', .* alone, with object='metrics'"):
        saved.export(tmp_path / "run.pt")
    saved.export(tmp_path / "metrics.pt", object="metrics")
    assert torch.load(tmp_path / "metrics.pt", weights_only=True) == {"sum": 3}


def test_what_was_not_made_by_us_is_told_by_its_type():
    with pytest.raises(TypeError, match=r"model\.layer is a torch\.nn\.modules\.linear\.Linear"):
        portable({"layer": nn.Linear(1, 1)}, "model")


def _export_with_little_space(saved, file, limit, pipe, export):
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        export(saved, file)
        pipe.send("")
    except OSError as error:
        pipe.send(str(error))


def said_with_little_space(saved, file, limit, export=Saved.export):
    receive, send = get_context("fork").Pipe(duplex=False)
    child = get_context("fork").Process(
        target=_export_with_little_space, args=(saved, file, limit, send, export)
    )
    child.start()
    send.close()
    message = receive.recv()
    child.join()
    return message


@pytest.mark.parametrize("limit", [0, 1000, 20_000])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_an_export_that_fails_in_the_middle_leaves_what_was_there(tmp_path, limit):
    file = tmp_path / "out" / "run.pt"
    saved = (
        Directory(tmp_path)
        .write(Snapshot({"state.json": {"objects": {}}}, {"train": {}}).streamed(), Manifest())
        .export(file)
    )
    before = file.read_bytes()
    saved = saved_with(tmp_path, own={"large": torch.ones(50_000)})
    message = said_with_little_space(saved, file, limit)
    assert message.startswith(f"could not write {file}: ")
    assert message.endswith("Nothing of it is left")
    assert [path.name for path in file.parent.iterdir()] == ["run.pt"]
    assert file.read_bytes() == before


@pytest.mark.parametrize("limit", [0, 20_000])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_directory_that_does_not_fit_on_the_disk_is_a_line_and_nothing_is_left(tmp_path, limit):
    saved, place = saved_with(tmp_path, own={"large": torch.ones(50_000)}), tmp_path / "out" / "dcp"
    message = said_with_little_space(saved, place, limit, export_dcp)
    assert message.startswith(f"could not write {place}: ")
    assert message.endswith("Nothing of it is left")
    assert "\n" not in message
    assert [*place.parent.iterdir()] == []
