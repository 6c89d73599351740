"""A plugin of pytest: where tests, ignite's modules and MONAI's make engines, they make ours.

Handlers and metrics of ignite keep its own class, so that their `isinstance` checks hold our engine
to it. ignite's DeterministicEngine stays as it is. With CAMSHAFT_ENGINE=ignite nothing is swapped.
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
import torchvision.datasets  # noqa: E402
from PIL import Image  # noqa: E402

for room in ("engine", "handlers", "metrics", "base", "distributed"):
    path = importlib.import_module(f"ignite.{room}").__path__
    for module in pkgutil.walk_packages(path, f"ignite.{room}.", onerror=lambda name: None):
        try:
            importlib.import_module(module.name)
        except Exception:  # it needs a library that is not installed
            continue

from camshaft.handlers.bridges.ignite import Engine  # noqa: E402

if os.environ["CAMSHAFT_ENGINE"] == "camshaft":  # later imports of tbptt and MONAI find it
    ignite.engine.Engine = ignite.engine.engine.Engine = Engine


class Digits(torch.utils.data.Dataset):
    """In the place of MNIST, which would be downloaded: blocks of light that can be told apart."""

    def __init__(self, root=None, train=True, transform=None, **_):
        generator = torch.Generator().manual_seed(0)
        self.targets = torch.randint(0, 10, (20_000,), generator=generator)
        shapes = (torch.rand(10, 28, 28, generator=generator) > 0.8) * 180
        self.data = shapes[self.targets] + torch.randint(0, 75, (20_000, 28, 28))
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, number):
        image = Image.fromarray(self.data[number].to(torch.uint8).numpy())
        return self.transform(image), int(self.targets[number])


torchvision.datasets.MNIST = Digits


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
    if not name.startswith("tests/ignite/"):
        return "MONAI"
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
