"""Checkpoints made by an attacker, most with right checksums: refused, and nothing in them runs."""

import hashlib
import io
import json
import os
import pickle
import resource
import struct
import zlib
from contextlib import suppress

import pytest
import safetensors.torch
import torch

from camshaft.handlers.checkpoint import BrokenCheckpoint

NEWEST = "iteration-0000000002"
FILES = ("state.json", "rank-00000.json", "model.safetensors", "train.safetensors")


class Payload:
    """Makes a directory when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def raw_pickle(trap):
    return pickle.dumps(Payload(trap))


def torch_file(trap, zipped=True):
    file = io.BytesIO()
    torch.save(Payload(trap), file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


PICKLES = {
    "pickle": raw_pickle,
    "torch's zip": torch_file,
    "torch's legacy file": lambda trap: torch_file(trap, zipped=False),
}


def forge(path, change=lambda body: None):
    """Write a manifest that is right for whatever the files hold now, but for one change."""
    body = json.loads((path / "manifest.json").read_text())
    del body["sha256"]
    for name in body["files"]:
        if (path / name).is_file() and (path / name).stat().st_size < 10**8:
            content = (path / name).read_bytes()
            sums = [zlib.crc32(content[at : at + 2**24]) for at in range(0, len(content), 2**24)]
            body["files"][name] = {"size": len(content), "crc32": sums}
    change(body)
    text = json.dumps(body, sort_keys=True)
    body["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(body))


def tensors_file(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def with_file(name, content):
    def attack(path):
        (path / name).write_bytes(content)
        forge(path)

    return attack


def with_tree(change, name="state.json"):
    def attack(path):
        tree = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps(change(tree) or tree))
        forge(path)

    return attack


def with_run(change):
    return with_tree(change, "rank-00000.json")


def with_manifest(change):
    return lambda path: forge(path, change)


def put(*keys):
    """A change of one value in a tree: the last one given is put where the others lead."""
    *way, last, value = keys

    def change(tree):
        place = tree
        for key in way:
            place = place[key]
        place[last] = value

    return change


def with_weight(tensor):
    def attack(path):
        tensors = safetensors.torch.load((path / MODEL).read_bytes())
        content = safetensors.torch.save({**tensors, "0.weight": tensor})
        with_file(MODEL, content)(path)

    return attack


def listing(name, **contents):
    return with_manifest(put("files", name, {"size": 0, "crc32": [], **contents}))


def link(name):
    def attack(path):
        elsewhere = path.parent / "elsewhere"
        (path / name).rename(elsewhere)
        (path / name).symlink_to(elsewhere)

    return attack


def link_to_device(path):
    (path / "state.json").unlink()
    (path / "state.json").symlink_to("/dev/zero")


def link_of_all(path):
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def pipe(path):
    (path / "state.json").unlink()
    os.mkfifo(path / "state.json")


def directory(path):
    (path / "state.json").unlink()
    (path / "state.json").mkdir()


def sparse(path):
    os.truncate(path / "state.json", 2**40)
    forge(path, put("files", "state.json", {"size": 2**40, "crc32": [1, 2, 3]}))


OPTIMIZER = ("objects", "optimizer", "content")
RUN = ("run",)
RNG = (*RUN, "position", "rng")
A_TENSOR = {"!tensor": "optimizer.state.1.momentum_buffer"}
MODEL = "model.safetensors"

ATTACKS = {
    # Names
    **{
        f"a file called {name!r}": listing(name)
        for name in ("../LATEST", "/etc/passwd", "a/b", "..", "", ".hidden", "a\\b", "x\n", "x\0")
    },
    "a file that is a link": link(MODEL),
    "a state that is a link": link("state.json"),
    "a manifest that is a link": link("manifest.json"),
    "a link to a device": link_to_device,
    "a directory that is a link": link_of_all,
    "a pipe": pipe,
    "a directory for a file": directory,
    "a file of a tebibyte of nothing": sparse,
    # Manifests
    "a manifest that is a list": lambda path: (path / "manifest.json").write_text("[]"),
    "a manifest nested deeply": lambda path: (path / "manifest.json").write_bytes(b"[" * 10**6),
    "a size of 2^63": with_manifest(put("files", MODEL, "size", 2**63)),
    "a size below zero": with_manifest(put("files", MODEL, "size", -1)),
    "a size as text": with_manifest(put("files", MODEL, "size", "8")),
    "sums of a larger file": with_manifest(put("files", MODEL, "crc32", [0] * 10**5)),
    "sums as text": with_manifest(put("files", MODEL, "crc32", "sum")),
    "a number as text": with_manifest(put("number", "3")),
    "a number of 400 digits": with_manifest(put("number", 10**400)),
    "a number below zero": with_manifest(put("number", -3)),
    "another iteration": with_manifest(put("iteration", 7)),
    "metrics as a list": with_manifest(put("metrics", [1])),
    "a metric of 400 digits": with_manifest(put("metrics", {"loss": 10**400})),
    "a metric as text": with_manifest(put("metrics", {"loss": "low"})),
    "a field that is none": with_manifest(put("__class__", "os.system")),
    "files as a list": with_manifest(put("files", ["state.json"])),
    "no state": with_manifest(lambda body: body["files"].pop("state.json")),
    "no run": with_manifest(lambda body: body["files"].pop("rank-00000.json")),
    "format 999": with_manifest(put("format", 999)),
    "a format as text": with_manifest(put("format", "1")),
    # States
    "a state nested deeply": with_file("state.json", b'{"a":' * 10**6),
    "a state of many values": with_file("state.json", b"[" + b"[]," * 10**6 * 3 + b"0]"),
    "a state of 70 MB": with_file("state.json", b" " * 70 * 10**6),
    "a number beyond floats": with_file("state.json", b'{"objects": {}, "run": [1e400]}'),
    "a number of 5000 digits": with_file("state.json", b'{"run": [%s]}' % (b"9" * 5000)),
    "NaN": with_file("state.json", b'{"objects": {}, "run": [NaN]}'),
    "a key twice": with_file("state.json", b'{"objects": {}, "objects": {}}'),
    "another encoding": with_file("state.json", json.dumps({"objects": {}}).encode("utf-16")),
    "a state that is a list": with_tree(lambda tree: [tree]),
    "no objects": with_tree(lambda tree: {"run": {}}),
    "objects as a list": with_tree(put("objects", [])),
    "an object without content": with_tree(put("objects", "model", {})),
    "an object in no file": with_tree(put("objects", "model", "file", "../../model")),
    "an object in a file that is a list": with_tree(put("objects", "model", "file", [])),
    "a model that is a list": with_tree(put("objects", "model", "content", [])),
    "a model that is text": with_tree(put("objects", "model", "content", "weights")),
    "a weight that is text": with_tree(put("objects", "model", "content", "0.weight", "x")),
    "a weight less": with_tree(lambda tree: tree["objects"]["model"]["content"].clear()),
    "a rank without a run": with_run(lambda part: part.pop("run") and None),
    "a run as a list": with_run(put("run", [])),
    "an empty run": with_run(put("run", {})),
    "a run that is nothing": with_run(put("run", None)),
    "buffers as a list": with_run(put("buffers", [])),
    "a tensor that is not there": with_run(put(*RNG, "torch", {"!tensor": "x"})),
    "a tensor of another name": with_run(put(*RNG, "torch", {"!tensor": ["x"]})),
    "a module by its name": with_run(put(*RUN, "memory", {"!module": "os"})),
    "a class by its name": with_run(put(*RUN, "memory", {"!object": ["os.system", ["true"]]})),
    "bytes that are none": with_run(put(*RUN, "memory", {"x": {"!bytes": "*"}})),
    "a float that is none": with_run(put(*RUN, "memory", {"x": {"!float": "os"}})),
    "a set of lists": with_run(put(*RUN, "memory", {"x": {"!set": [[1], [2]]}})),
    "a deque of 2^64": with_run(put(*RUN, "memory", {"x": {"!deque": [2**64, []]}})),
    "a deque of a list": with_run(put(*RUN, "memory", {"x": {"!deque": [[], []]}})),
    "a factory by its name": with_run(put(*RUN, "memory", {"x": {"!default": ["os.system", {}]}})),
    "a factory that is a list": with_run(put(*RUN, "memory", {"x": {"!default": [[], {}]}})),
    "a name alone": with_run(put(*RUN, "memory", {"x": {"!named": "os"}})),
    "pairs of three": with_run(put(*RUN, "memory", {"x": {"!dict": [[1, 2, 3]]}})),
    "an iteration as text": with_run(put(*RUN, "iteration", "2")),
    "an iteration of 2^64": with_run(put(*RUN, "iteration", 2**64)),
    "a position that is text": with_run(put(*RUN, "position", "here")),
    "a position of texts": with_run(put(*RUN, "position", "began", "0")),
    "a generator beyond its key": with_run(put(*RNG, "numpy", "state", "pos", 10**8)),
    "Python's generator cut": with_run(put(*RNG, "python", {"!tuple": [3, {"!bytes": ""}, None]})),
    "an optimizer without groups": with_tree(put(*OPTIMIZER, {"state": {}})),
    "an optimizer with groups of text": with_tree(put(*OPTIMIZER, "param_groups", ["a"])),
    "an optimizer without states": with_tree(put(*OPTIMIZER, {"param_groups": []})),
    # Tensors
    "a header of 2^63 bytes": with_file(MODEL, tensors_file({}, length=2**63)),
    "a header of 2^64-1 bytes": with_file(MODEL, tensors_file({}, length=2**64 - 1)),
    "a header longer than its file": with_file(MODEL, tensors_file({}, length=10**6)),
    "a header of 50 MB": with_file(MODEL, tensors_file(b"{" + b" " * 50 * 10**6 + b"}")),
    "a header nested deeply": with_file(MODEL, tensors_file(b'{"a":' * 10**6)),
    "a header that is no text": with_file(MODEL, tensors_file(b"\xff\xfe{}")),
    "a header that is a pickle": with_file(MODEL, tensors_file(pickle.dumps({}))),
    "no header": with_file(MODEL, b"\1\0"),
    "an empty file": with_file(MODEL, b""),
    "a tensor of 2^63": with_file(
        MODEL, tensors_file({"0.weight": entry(shape=[2**63])}, bytes(8))
    ),
    "a product that overflows": with_file(
        MODEL, tensors_file({"0.weight": entry(shape=[2**32, 2**32, 2])}, bytes(8))
    ),
    "an empty tensor of 2^62": with_file(
        MODEL, tensors_file({"0.weight": entry(shape=[0, 2**62], offsets=[0, 0])})
    ),
    "offsets beyond the file": with_file(
        MODEL, tensors_file({"0.weight": entry(shape=[10**6], offsets=[0, 4 * 10**6])}, bytes(8))
    ),
    "offsets below zero": with_file(
        MODEL, tensors_file({"0.weight": entry(offsets=[-8, 0])}, bytes(8))
    ),
    "tensors in one place": with_file(
        MODEL, tensors_file({"0.weight": entry(), "0.bias": entry()}, bytes(8))
    ),
    "a type that nobody knows": with_file(MODEL, tensors_file({"0.weight": entry("PY")}, bytes(8))),
    "some weights only": with_file(MODEL, tensors_file({"0.weight": entry()}, bytes(8))),
    "a weight of another shape": with_weight(torch.zeros(4, 8)),
    "a weight that would be spread": with_weight(torch.zeros(1, 1)),
    "a weight of another type": with_weight(torch.zeros(8, 4, dtype=torch.int64)),
    "a weight of twice the precision": with_weight(torch.zeros(8, 4, dtype=torch.float64)),
    "more data than tensors": with_file(MODEL, tensors_file({"0.weight": entry()}, bytes(80))),
}


@pytest.fixture
def newest(run):
    """The newest of two checkpoints that nobody has touched so far."""
    return run / NEWEST


@pytest.fixture
def without_pickle(monkeypatch):
    """Whoever unpickles now fails loudly, with an error that nobody takes for a ValueError."""

    def refuse(*_, **__):
        pytest.fail("something was unpickled")

    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)


def refused(faults, capsys, **options):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # what it says differs
        faults.train(until=5, seed=1, **options)
    assert capsys.readouterr().out == "weights unchanged\n"
    return caught.value


@pytest.mark.quick(name=50)
@pytest.mark.timeout(20)
@pytest.mark.usefixtures("without_pickle")
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_with_the_name_of_the_checkpoint(faults, newest, capsys, name):
    ATTACKS[name](newest)
    error = refused(faults, capsys, directory=newest.parent, resume=newest)
    assert str(newest) in str(error)
    assert isinstance(error, BrokenCheckpoint) or "cannot load" in str(error)
    assert "checksum is not" not in str(error)  # it gets further than that


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", PICKLES)
@pytest.mark.parametrize("file", ["manifest.json", *FILES])
def test_a_pickle_is_refused_wherever_it_lies(faults, newest, capsys, request, kind, file):
    trap = newest.parent / "executed"
    content = PICKLES[kind](trap)
    (newest / file).write_bytes(content)
    if file != "manifest.json":
        forge(newest)
    request.getfixturevalue("without_pickle")
    error = refused(faults, capsys, directory=newest.parent, resume=newest)
    assert isinstance(error, BrokenCheckpoint)
    assert f"{newest} is broken: {file} " in str(error)
    assert not trap.exists()


@pytest.mark.parametrize("kind", [*PICKLES, "../..", "a link"])
def test_what_latest_says_decides_nothing(faults, newest, whole, request, kind):
    trap, mark = newest.parent / "executed", newest.parent / "LATEST"
    mark.unlink()
    if kind == "a link":
        mark.symlink_to(newest.parent.parent / "target")
        (newest.parent.parent / "target").write_text("mine")
    else:
        mark.write_bytes(PICKLES[kind](trap) if kind in PICKLES else kind.encode())
    request.getfixturevalue("without_pickle")
    assert faults.goes_on(newest.parent, whole) == 2
    assert not trap.exists()
    assert mark.read_text() == "iteration-0000000005\n"
    if kind == "a link":
        assert (newest.parent.parent / "target").read_text() == "mine"


@pytest.mark.usefixtures("without_pickle")
def test_a_pickle_that_no_manifest_lists_is_told_of_and_not_read(faults, newest, whole, caplog):
    (newest / "model.pt").write_bytes(b"\x80\x04N.")
    assert faults.goes_on(newest.parent, whole) == 2
    assert f"{newest} holds files that no checkpoint has: ['model.pt']" in caplog.text


def test_an_attack_costs_no_more_memory_than_twice_its_size(faults, newest):
    def peak():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with suppress(ValueError):
            faults.train(newest.parent, resume=newest, seed=1)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024

    content = tensors_file({"0.weight": entry(shape=[2**25], offsets=[0, 2**27])}, bytes(2**27))
    for attack in (
        with_file(MODEL, content),
        ATTACKS["a state of many values"],
        ATTACKS["a header of 50 MB"],
        ATTACKS["a file of a tebibyte of nothing"],
    ):
        attack(newest)
        size = min(sum(path.stat().st_size for path in newest.iterdir()), 2**28)
        rise, status = faults.in_child(peak)
        assert status == 0
        assert rise < 2 * size + 64 * 2**20
