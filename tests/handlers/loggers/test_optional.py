"""Libraries that are not there."""

import sys

import pytest

from camshaft.handlers.loggers.optional import need


def test_the_error_says_what_to_install():
    with pytest.raises(ModuleNotFoundError) as caught:
        need("no_such_library", "Board", "board")
    assert str(caught.value) == 'Board needs no_such_library: pip install "camshaft[board]"'


def test_a_library_that_cannot_be_imported_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ModuleNotFoundError, match="Board needs tqdm"):
        need("tqdm", "Board", "board")


def test_looking_imports_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    need("this", "Board", "board")
    assert "this" not in sys.modules
