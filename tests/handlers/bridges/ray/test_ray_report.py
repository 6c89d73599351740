"""Mistakes with reports to Ray, told before a run."""

import sys

import pytest

from camshaft.handlers import LocalCheckpoint, RayReport


def test_mistakes_are_told(monkeypatch):
    with pytest.raises(TypeError, match="needs the Checkpoint handler of the engine"):
        RayReport("runs/demo")
    with pytest.raises(ValueError, match="whose directory all workers share"):
        RayReport(LocalCheckpoint("run"))
    with pytest.raises(TypeError, match="metrics='loss'.*needs a list of names"):
        RayReport(metrics="loss")
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.train", None)
    with pytest.raises(ImportError, match=r'pip install "camshaft\[ray\]"'):
        RayReport()
