"""What the right scripts share: each trains as its loop does, and Camshaft says nothing."""

import logging

import pytest
import torch

from camshaft.handlers import Checkpoint


@pytest.fixture
def equals(tmp_path, caplog):
    """Compares a script with its loop: `equals(script)` runs `script(None)` and `script(handlers)`.

    A script makes its models and data anew, trains them by its loop if it gets None and by an
    engine with these handlers if it gets some, and returns what it has trained. A Python warning is
    an error in all tests; here a word of the logger is one, too.
    """

    def compare(script):
        torch.manual_seed(0)
        by_loop = [each.clone() for each in tensors(script(None))]
        torch.manual_seed(0)
        with caplog.at_level(logging.WARNING, "camshaft"):
            trained = script([Checkpoint(tmp_path / "run", resume=True)])
        assert caplog.messages == []
        found = [*tensors(trained)]
        assert len(found) == len(by_loop) > 0
        assert all(map(torch.equal, found, by_loop))

    return compare


def tensors(trained):
    """The weights of modules, and tensors as they are."""
    for each in trained:
        if isinstance(each, torch.nn.Module):
            yield from each.state_dict().values()
        else:
            yield torch.as_tensor(each)
