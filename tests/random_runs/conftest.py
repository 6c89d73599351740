"""The modules of this folder can be imported by its tests, and by processes of their own."""

import logging
import sys
from pathlib import Path

import pytest
import torch

if (place := str(Path(__file__).parent.parent)) not in sys.path:
    sys.path.append(place)


@pytest.fixture(scope="session", autouse=True)
def optimizers_are_imported():
    """The first optimizer imports a compiler, which is not to be timed in a draw."""
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])


@pytest.fixture(scope="module", autouse=True)
def nobody_reads_the_messages():
    logger = logging.getLogger("camshaft")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
