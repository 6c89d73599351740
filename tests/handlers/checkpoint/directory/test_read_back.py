"""What was written is read by the rules of every reader, before it counts as saved."""

import logging
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft import Engine, Events, supervised
from camshaft.handlers import Checkpoint, best, latest
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.directory import Directory, next_number, scan, strip_to_weights
from camshaft.handlers.checkpoint.format import (
    Checksums,
    Keep,
    Manifest,
    Payload,
    UnreadableError,
    installed_versions,
)
from camshaft.handlers.files import text_of

LARGEST = 2**63 - 1
TREE = text_of({"objects": {}}).encode()


def write(directory, manifest, **files):
    payloads = {"state.json": TREE, **files}
    return Directory(directory).write(
        {name: Payload.of(each) for name, each in payloads.items()}, manifest
    )


def forge(saved, **fields):
    """Write another manifest to a checkpoint, as whoever made it would."""
    forged = replace(saved.manifest, **fields)
    (saved.path / "manifest.json").write_text(forged.to_json())


COUNTS = st.integers(0, LARGEST) | st.sampled_from(
    [-1, 2**63, 10**10, 10**400, 10**5000, True, 1.0]
)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=9) | st.sampled_from(
    ["!tuple", "\ud83d\ude00", "", "\0"]
)
NUMBERS = st.floats() | st.integers() | st.sampled_from([10**400, 10**5000, True, None, "1"])
MANIFESTS = st.builds(
    Manifest,
    *(COUNTS, COUNTS, COUNTS, COUNTS, TEXTS),
    metrics=st.dictionaries(TEXTS, NUMBERS, max_size=3),
    written=st.dictionaries(TEXTS, COUNTS, max_size=3),
    keep=TEXTS,
    world_size=COUNTS,
    versions=st.dictionaries(TEXTS, TEXTS | st.none(), max_size=2),
)


@given(MANIFESTS, TEXTS | st.sampled_from(["a.bin", "x.safetensors", ".hidden"]))
def test_what_is_written_is_what_is_read_or_nothing_is_left(tmp_path_factory, manifest, name):
    directory = tmp_path_factory.mktemp("run")
    try:
        saved = write(directory, manifest, **{name: b""} if name.isalnum() else {})
    except (OSError, TypeError, ValueError):
        assert not any(directory.iterdir())
        return
    (found,), broken = scan(directory)
    assert (found.path, broken) == (saved.path, {})
    assert found.manifest.to_json() == saved.manifest.to_json()
    if found.manifest.number < LARGEST:
        assert next_number(scan(directory)[0]) == found.manifest.number + 1


FILES = st.dictionaries(
    st.sampled_from(["state.json", "a.safetensors", ".b", "a/b", "c d"]),
    st.builds(Checksums, COUNTS, st.lists(COUNTS, max_size=2)),
    max_size=2,
)


@given(MANIFESTS, FILES)
def test_a_manifest_that_is_read_is_read_equal(manifest, files):
    manifest = replace(manifest, files=files)
    try:
        again = Manifest.of_json(manifest.to_json())
    except (TypeError, ValueError):
        return
    assert again.to_json() == manifest.to_json()


@pytest.mark.parametrize(
    ("fields", "files", "said"),
    [
        ({"iteration": -1}, {}, "iteration is -1, not int"),
        ({"reason": 3}, {}, "reason is 3, not str"),
        ({"versions": {"torch": None}}, {}, "versions is"),
        ({"metrics": {"loss": 10**400}}, {}, "metrics is"),
        ({"metrics": {"\ud83d\ude00": 1.0}}, {}, "halves of a character"),
        ({}, {".hidden": b""}, "do not lie beside it: ['.hidden']"),
        ({}, {"state.json": b"{"}, "state.json is not JSON"),
        ({}, {"state.json": b'{"a": 1, "a": 2}'}, "the key 'a' twice"),
        ({}, {"model.safetensors": b"no header"}, "model.safetensors is not a .safetensors file"),
    ],
    ids=str,
)
def test_what_no_reader_would_take_is_not_saved(tmp_path, fields, files, said):
    earlier = write(tmp_path, Manifest(iteration=1))
    with pytest.raises((UnreadableError, TypeError)) as caught:
        write(tmp_path, Manifest(**{"iteration": 2} | fields), **files)
    assert said in str(caught.value)
    assert scan(tmp_path) == ([earlier], {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "iteration-0000000001"]


def test_no_save_is_numbered_after_the_largest_number_and_the_checkpoint_is_named(tmp_path):
    forge(write(tmp_path, Manifest(iteration=1)), number=LARGEST)
    with pytest.raises(UnreadableError, match="iteration-0000000001 has the number 92233.*move it"):
        write(tmp_path, Manifest(iteration=2))
    forge(scan(tmp_path)[0][0], number=LARGEST - 1)
    saved = write(tmp_path, Manifest(iteration=2))
    assert saved.manifest.number == LARGEST
    assert [each.manifest.number for each in scan(tmp_path)[0]] == [LARGEST - 1, LARGEST]


def script(directory, **arguments):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(Checkpoint(directory, **arguments))
    return engine


DATA = [(torch.ones(2, 2), torch.ones(2, 1))] * 2


def test_a_run_beside_a_checkpoint_of_the_largest_number_does_not_begin(tmp_path):
    script(tmp_path).run(DATA, max_epochs=1)
    forge(checkpoints(tmp_path)[-1], number=LARGEST)
    with pytest.raises(OSError, match="after which no save can be numbered"):
        script(tmp_path, resume=True).run(DATA, max_epochs=2)


def saving(directory, numbers, **arguments):
    """A run whose last checkpoint has these numbers when these epochs begin."""
    engine = script(directory, **arguments)

    @engine.on(Events.EPOCH_STARTED(at=tuple(numbers)))
    def change(state):
        engine.handlers["Checkpoint"].wait(state)
        forge(checkpoints(directory)[-1], number=numbers[state.epoch])

    return engine


@pytest.mark.parametrize("background", [True, False])
def test_a_save_that_cannot_be_read_is_not_tried_again(tmp_path, background, caplog):
    arguments = {"keep": latest(9), "on_failure": "warn", "background": background}
    engine = saving(tmp_path, {2: LARGEST, 4: 7}, **arguments)
    with caplog.at_level(logging.WARNING, "camshaft"):
        engine.run(DATA, max_epochs=4)
    assert [each.manifest.epoch for each in checkpoints(tmp_path)] == [1, 4]
    assert len(caplog.messages) == 2  # of the saves after the second and the third epoch
    for message in caplog.messages:
        assert "after which no save can be numbered" in message
        assert message.endswith("the run goes on without it")


@pytest.mark.parametrize("background", [True, False])
def test_a_save_that_cannot_be_read_ends_the_run(tmp_path, background):
    engine = saving(tmp_path, {2: LARGEST}, background=background)
    with pytest.raises(UnreadableError, match="Older ones are as they were"):
        engine.run(DATA, max_epochs=3)


@pytest.mark.parametrize("ask", ["stop", "save"])
def test_a_reason_is_text(ask):
    engine = Engine(lambda state, batch: getattr(state, ask)(3))
    with pytest.raises(TypeError, match=rf"state.{ask}\(3\): needs the reason as text"):
        engine.run([1], max_epochs=1)


def test_the_text_of_claims_is_one_that_is_read():
    name = type("Name", (str,), {"__repr__": lambda self: "Name()"})("loss")
    for keep in (best(1, name), best(1, "a\ud83d'\"\\\n"), latest(LARGEST)):
        assert Keep.of(repr(keep)) == keep
    with pytest.raises(ValueError, match="needs a number up to"):
        latest(10**5000)
    with pytest.raises(ValueError, match="saved as this text, so use fewer claims"):
        Checkpoint("runs", keep=best(1, "x" * 10_001))


def test_damaged_metadata_of_a_package_has_no_version(tmp_path, monkeypatch):
    (tmp_path / "safetensors-1.dist-info").mkdir()
    (tmp_path / "safetensors-1.dist-info/METADATA").touch()
    monkeypatch.syspath_prepend(tmp_path)
    installed_versions.cache_clear()
    try:
        assert installed_versions()["safetensors"] == "unknown"
    finally:
        installed_versions.cache_clear()


@pytest.mark.parametrize("name", ["x" * 300, "../x", "train", "rank-7"], ids=lambda name: name[:9])
def test_a_module_whose_name_cannot_be_that_of_a_file_is_saved_with_the_rest(tmp_path, name):
    model = torch.nn.Linear(2, 1)
    engine = Engine(lambda state, batch: None, Checkpoint(tmp_path), objects={name: model})
    engine.run([1], max_epochs=1)
    saved = checkpoints(tmp_path).latest()
    assert torch.equal(saved.state_dict(name)["weight"], model.weight)
    assert set(saved.manifest.files) == {"state.json", "train.safetensors", "rank-00000.json"}


def test_a_stripped_checkpoint_is_read_back_too(tmp_path):
    script(tmp_path).run(DATA, max_epochs=1)
    strip_to_weights(checkpoints(tmp_path)[-1])
    assert checkpoints(tmp_path).latest().manifest.files.keys() == {
        "state.json",
        "model.safetensors",
    }
