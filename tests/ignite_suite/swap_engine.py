"""A plugin of pytest: where ignite's tests and modules make engines, they make ours.

Handlers and metrics keep ignite's own class, so that their `isinstance` checks hold our engine to
it. ignite's DeterministicEngine stays as it is.
"""

import importlib
import os
import pkgutil
import sys
from pathlib import Path

import pytest
import torch

library = torch.library.Library("torchvision", "FRAGMENT")
for operator in ("nms", "qnms"):  # torchvision names them when it is imported, even without them
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import ignite.engine.deterministic  # noqa: E402

for room in ("engine", "handlers", "metrics", "base", "distributed"):
    path = importlib.import_module(f"ignite.{room}").__path__
    for module in pkgutil.walk_packages(path, f"ignite.{room}.", onerror=lambda name: None):
        try:
            importlib.import_module(module.name)
        except Exception:  # it needs a library that is not installed
            continue

from camshaft.engine.ignite import Engine  # noqa: E402

ignite.engine.Engine = ignite.engine.engine.Engine = Engine  # a later import of tbptt finds it


def wanted():
    """The kind of each test that is to run, by its name or by that of its function."""
    kind = file = ""
    for line in Path(__file__).with_name("tests.txt").read_text().splitlines():
        if line.startswith("["):
            kind = line.strip("[").partition(":")[0]
        elif line.startswith(" "):
            yield f"tests/ignite/{file}::{line.strip()}", kind
        else:
            file = line


KINDS = dict(wanted())


def kind_of(name):
    return KINDS.get(name) or KINDS.get(name.partition("[")[0])


def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[each for each in items if not kind_of(each.nodeid)])
    items[:] = [each for each in items if kind_of(each.nodeid)]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when == "call" or report.outcome != "passed":
        outcome = "passed" if hasattr(report, "wasxfail") else report.outcome
        with Path(os.environ["CAMSHAFT_RESULTS"]).open("a") as file:
            file.write(f"{kind_of(item.nodeid)}\t{item.nodeid}\t{outcome}\n")


assert "ignite.contrib.engines.tbptt" not in sys.modules
