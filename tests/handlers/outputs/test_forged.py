"""Predictions from elsewhere: a forged name or manifest costs little, and is called broken."""

import hashlib
import json
import time
import zlib
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from camshaft import Engine, State
from camshaft.handlers import Predictions, predict
from camshaft.handlers.checkpoint import BrokenCheckpoint, resume_alone, saved_at
from camshaft.handlers.checkpoint.format import Checksums, Manifest

DATA = [torch.arange(3.0), torch.arange(3.0, 5.0)]


def written(directory):
    """Predictions in two shards, and the folder of the last one."""
    engine = Engine(lambda state, batch: {"double": 2 * batch})
    predict(engine, DATA, directory, megabytes=1e-6)
    return max(directory.glob("rank-0-of-1/iteration-*"))


def test_a_name_that_tells_of_a_billion_ranks_is_refused_at_once(tmp_path):
    (tmp_path / "rank-0-of-999999999").mkdir()
    began = time.monotonic()
    with pytest.raises(ValueError, match="are not complete: rank-1-of-999999999, rank-2-of"):
        Predictions(tmp_path).load()
    assert time.monotonic() - began < 5
    (tmp_path / "rank-0-of-999999999").rename(tmp_path / "rank-0-of-0")
    with pytest.raises(ValueError, match="holds no predictions"):
        Predictions(tmp_path).load()


@pytest.mark.parametrize("name", ["samples", "after", "interleaved"])
@pytest.mark.parametrize("number", [None, -1.0, 0.5, 1e300, float("nan"), float("inf"), 2**62])
def test_a_manifest_with_other_numbers_is_a_broken_checkpoint(tmp_path, name, number):
    for place in sorted(written(tmp_path).parent.glob("iteration-*")):
        manifest = Manifest.of_json((place / "manifest.json").read_bytes())
        metrics = {k: v for k, v in (manifest.metrics | {name: number}).items() if v is not None}
        (place / "manifest.json").write_text(replace(manifest, metrics=metrics).to_json())
    for read in (Predictions.load, list):
        with pytest.raises(BrokenCheckpoint, match=f"{name} is"):
            read(Predictions(tmp_path))


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["!tensor", "!tuple", "!dict", "!float", "rows", "x"]), inner
        )
    ),
    max_leaves=6,
)


def places_in(tree, at=()):
    yield at
    if isinstance(tree, dict | list):
        for key, each in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places_in(each, (*at, key))


def changed(tree, place, value):
    if not place:
        return value
    tree = dict(tree) if isinstance(tree, dict) else list(tree)
    tree[place[0]] = changed(tree[place[0]], place[1:], value)
    return tree


def fuzz(directory, place, examples):
    """Change one value of the state of a shard, with checksums that fit; then of its manifest."""
    text = (place / "state.json").read_bytes()
    whole = Manifest.of_json((place / "manifest.json").read_bytes())
    states, manifests = (list(places_in(json.loads(each))) for each in (text, whole.to_json()))

    def read():
        for way in (Predictions.load, list, len):
            with suppress(ValueError):  # of which BrokenCheckpoint is one
                way(Predictions(directory))

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(states), VALUES)
    def of_states(at, value):
        content = json.dumps(changed(json.loads(text), at, value)).encode()
        (place / "state.json").write_bytes(content)
        sums = Checksums(len(content), [zlib.crc32(content)])
        manifest = replace(whole, files=whole.files | {"state.json": sums})
        (place / "manifest.json").write_text(manifest.to_json())
        read()
        with suppress(ValueError):
            resume_alone(State(training=False), saved_at(place))

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(manifests), VALUES)
    def of_manifests(at, value):
        body = changed(json.loads(whole.to_json()), at, value)
        (place / "manifest.json").write_text(json.dumps(body))
        read()
        if isinstance(body, dict):
            body.pop("sha256", None)
            with_sum = body | {"sha256": digest(body)}
            (place / "manifest.json").write_text(json.dumps(with_sum))
            read()

    of_manifests()
    (place / "manifest.json").write_text(whole.to_json())
    of_states()
    (place / "state.json").write_bytes(text)
    (place / "manifest.json").write_text(whole.to_json())


def digest(body):
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def test_changed_values_are_broken_checkpoints_and_no_other_error(tmp_path):
    last = written(tmp_path)
    fuzz(tmp_path, min(last.parent.glob("iteration-*")), 40)


@pytest.mark.soak
def test_a_thousand_changed_values(tmp_path):
    last = written(tmp_path)
    for place in (min(last.parent.glob("iteration-*")), last):
        fuzz(tmp_path, place, 500)
