"""Manifests: whole or refused."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.handlers.checkpoint.format import Checksums, Manifest

WHOLE = Manifest(
    *(3, 120, 60, 2, "signal", {"loss": 0.1, "odd": math.inf}, {"loss": 7}, "latest(2)", 2),
    versions={"torch": "2"},
    files={"model.safetensors": Checksums(10, [1]), "state.json": Checksums(4, [2, 3])},
)


def test_a_manifest_comes_back_as_it_was():
    assert Manifest.of_json(WHOLE.to_json()) == WHOLE
    nan = Manifest.of_json(Manifest(1, metrics={"loss": math.nan}).to_json())
    assert math.isnan(nan.metrics["loss"])


@given(st.data())
def test_no_changed_character_goes_unnoticed(data):
    text = WHOLE.to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.characters(codec="ascii")) + text[at + 1 :]
    try:
        assert Manifest.of_json(damaged) == WHOLE
    except ValueError:
        return
    assert json.loads(damaged) == json.loads(text)  # white space


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_what_is_no_manifest_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        Manifest.of_json(text)


@pytest.mark.parametrize("name", ["../model", "/etc/passwd", "a/b", ".hidden", "", "a\\b", "a\n"])
def test_only_plain_names_of_files_are_taken(name):
    text = Manifest(1, files={name: Checksums(0, [])}).to_json()
    with pytest.raises(ValueError, match="do not lie beside it"):
        Manifest.of_json(text)


def test_one_without_the_time_of_its_save_is_read_and_has_the_text_of_earlier_versions():
    text = Manifest(1).to_json()
    assert "time" not in json.loads(text)
    assert Manifest.of_json(text).time == 0
    timed = Manifest(1, time=1.8e9)
    assert Manifest.of_json(timed.to_json()) == timed


@pytest.mark.parametrize("time", [-1.0, math.nan, math.inf, "now", 10**400])
def test_a_time_that_no_clock_shows_is_refused(time):
    with pytest.raises(ValueError, match="it is no manifest: time is"):
        Manifest.of_json(Manifest(1, time=time).to_json())
