"""Names that are imported late are there for everybody, and no others."""

import importlib

import pytest

from camshaft.engine.late import late


@pytest.mark.parametrize(
    "package",
    [
        "camshaft",
        "camshaft.handlers",
        "camshaft.handlers.checkpoint",
        "camshaft.handlers.schedules",
    ],
)
def test_every_public_name_is_there_and_listed(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


def test_what_is_not_there_is_the_usual_error():
    for package in ("camshaft", "camshaft.handlers"):
        with pytest.raises(
            AttributeError, match=f"module '{package}' has no attribute 'Chekpoint'"
        ):
            importlib.import_module(package).Chekpoint  # noqa: B018


def test_what_was_asked_for_once_is_found_without_asking_again():
    module = importlib.import_module("camshaft.handlers")
    vars(module).pop("EarlyStopping", None)
    get, *_ = late("camshaft.handlers")
    assert get("EarlyStopping") is vars(module)["EarlyStopping"]
