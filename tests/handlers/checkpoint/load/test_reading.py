"""What a resume reads: each byte of an optimizer once, each manifest once, and nothing in vain."""

import os
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft import Engine, Events
from camshaft.handlers import Checkpoint, latest
from camshaft.handlers.checkpoint.directory import saved_at
from camshaft.handlers.checkpoint.format import Checksums, Manifest, Places, checksums
from camshaft.handlers.checkpoint.load import VerifyingReader

NEWEST = "iteration-0000000003"
LAYERS, WIDTH = 4, 128


class Script:
    """A run whose model and optimizer can be looked at."""

    def __init__(self, directory, seed=1, **options):
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        options = {"when": Events.ITERATION_COMPLETED, "keep": latest(3)} | options
        checkpoint = Checkpoint(directory, background=False, **options)
        objects = {"model": self.model, "optimizer": self.optimizer}
        self.engine = Engine(self.step, checkpoint, objects=objects)

    def step(self, state, batch):
        self.model(torch.full((2, WIDTH), float(batch))).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def run(self, until):
        return self.engine.run(range(until), max_epochs=1)

    def held(self):
        states = self.optimizer.state.values()
        moments = [each for state in states for each in state.values()]
        return [each.detach().clone() for each in (*self.model.parameters(), *moments)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory of three checkpoints, and what the last one has to give back."""
    directory = tmp_path_factory.mktemp("saved") / "run"
    script = Script(directory)
    script.run(3)
    return directory, script.held()


@pytest.fixture
def run(saved, tmp_path):
    return shutil.copytree(saved[0], tmp_path / "run"), saved[1]


def resumed(directory):
    """A script that has gone on from the newest checkpoint, and made no step."""
    script = Script(directory, seed=2, resume=True)
    began = []
    script.engine.on(Events.LOADING)(lambda state: began.append(state.iteration))
    script.run(3)
    assert began == [3]
    return script


def equal(some, others):
    return len(some) == len(others) and all(map(torch.equal, some, others))


def c_calls(function):
    """The functions in C that Python code calls, by name, with their counts."""
    found, before = Counter(), sys.getprofile()

    def note(frame, event, argument):
        if event == "c_call":
            found[argument.__name__] += 1

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return found


def test_a_resume_takes_no_tensor_from_a_file_but_weights_to_copy(run):
    directory, wanted = run
    found = []
    calls = c_calls(lambda: found.append(resumed(directory)))
    assert equal(found[0].held(), wanted)
    of_run = (
        calls["get_slice"] - (1 + 1 + 3) * 2 * LAYERS
    )  # the form, a view; what Adam keeps of it
    assert of_run == 0
    assert (calls["get_tensor"], calls["clone"]) == (2 * LAYERS, 0)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
def test_a_resume_reads_each_byte_of_the_newest_checkpoint_once(run):
    directory, _ = run
    resumed(directory)  # imports what it needs
    size = saved_at(directory / NEWEST).manifest.size
    script = Script(directory, seed=2, resume=True)
    counts = [bytes_read()]
    script.engine.on(Events.LOADING)(lambda state: counts.append(bytes_read()))
    script.run(3)
    assert size < counts[1] - counts[0] < 1.1 * size


def bytes_read():
    """What this process has read by calls to the system, from the disk or not."""
    return int(Path("/proc/self/io").read_text().split()[1])


READ = []
"""The names of files that Python code opens, while it is a list that somebody looks at."""
sys.addaudithook(
    lambda event, arguments: (
        READ.append(Path(arguments[0]).name)
        if READ and event == "open" and isinstance(arguments[0], str | Path)
        else None
    )
)


def test_in_a_directory_of_100_checkpoints_each_manifest_is_read_once(run):
    directory, wanted = run
    manifest = Manifest.of_json((directory / NEWEST / "manifest.json").read_text())
    for iteration in range(4, 101):  # names that are later, of a run that was set back
        place = directory / f"iteration-{iteration:010d}"
        place.mkdir()
        earlier = replace(manifest, number=0, iteration=iteration)
        (place / "manifest.json").write_text(earlier.to_json())
    READ.append("begin")
    script = resumed(directory)
    read = Counter(READ)
    READ.clear()
    assert equal(script.held(), wanted)
    assert read["manifest.json"] == 100


@pytest.mark.parametrize("file", ["model.safetensors", "state.json", "train.safetensors"])
def test_a_wrong_byte_at_the_end_of_any_file_leaves_model_and_optimizer_as_they_were(run, file):
    directory, _ = run
    for path in (directory / "iteration-0000000001", directory / "iteration-0000000002"):
        shutil.rmtree(path)
    with (directory / NEWEST / file).open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        last = opened.read(1)
        opened.seek(-1, os.SEEK_END)
        opened.write(bytes([last[0] ^ 1]))
    script = Script(directory, seed=2, resume=True)
    before = script.held()
    with pytest.raises(ValueError, match=rf"{NEWEST}: {file} is damaged"):
        script.run(5)
    assert equal(script.held(), before)
    assert not script.optimizer.state


def test_what_an_optimizer_goes_on_with_is_of_the_checkpoint_that_was_whole(run, saved):
    directory, wanted = run
    path = directory / "iteration-0000000004"
    shutil.copytree(directory / NEWEST, path)
    manifest = Manifest.of_json((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(replace(manifest, number=9, iteration=4).to_json())
    content = bytearray((path / "train.safetensors").read_bytes())
    content[-5000:] = bytes(5000)
    (path / "train.safetensors").write_bytes(content)
    assert equal(resumed(directory).held(), wanted)


def test_nothing_of_a_file_that_changes_after_it_was_verified_is_loaded(run):
    path = run[0] / NEWEST
    once, whole = VerifyingReader(), saved_at(path)
    once.verify(whole)
    (path / "train.safetensors").write_bytes(b"")
    wanted = run[1][2 * LAYERS :]
    found = once.tensors["train"]
    moments = [found[name].read() for name in found if "optimizer" in name]
    assert len(moments) == len(wanted)
    assert all(any(torch.equal(each, other) for other in wanted) for each in moments)


def test_a_file_of_holes_is_not_held(run):
    path = run[0] / NEWEST / "train.safetensors"
    size = 2**26
    text = b'{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + size)
    place = run[0] / NEWEST / "manifest.json"
    manifest = Manifest.of_json(place.read_text())
    files = manifest.files | {path.name: Checksums.of(path)}
    place.write_text(replace(manifest, files=files).to_json())
    once, whole = VerifyingReader(), saved_at(run[0] / NEWEST)
    once.verify(whole)
    assert once.tensors == {}


@given(st.binary(max_size=3000), st.lists(st.integers(0, 400)))
def test_bytes_are_summed_and_put_to_their_places_wherever_chunks_and_places_end(
    tmp_path_factory, content, sizes
):
    path = tmp_path_factory.mktemp("places") / "file"
    path.write_bytes(content)
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        for name, value in {"CHUNK": 256, "PIECE": 64, "MOST_VIEWS": 3}.items():
            patched.setattr(checksums, name, value)
        buffer, views = memoryview(bytearray(len(content))), []
        for size in [*sizes, len(content)]:
            begin = sum(map(len, views))
            views.append(buffer[begin : begin + size])
        found = Checksums.of(path, into=Places(views))
        assert bytes(buffer) == content
        assert found == Checksums.of(path)
    chunks = [content[at : at + 256] for at in range(0, len(content), 256)]
    assert found == Checksums(len(content), [crc32(each) for each in chunks])
