"""Totals over a whole run."""

import pytest
import torch

from camshaft import Engine, Events, State
from camshaft.handlers import Totals

COUNTS = {"samples": len, "ones": torch.sum}
DATA = [torch.ones(3), torch.ones(2), torch.ones(4)]


def build():
    return Engine(lambda state, batch: None, Totals(COUNTS))


def test_totals_are_never_reset():
    metrics = build().run(DATA, max_epochs=3).metrics
    assert metrics["total/samples"] == 27
    assert torch.equal(metrics["total/ones"], torch.tensor(27.0))


@pytest.mark.parametrize("stop_at", range(1, 6))
def test_a_resumed_run_goes_on_counting(stop_at):
    first = build()
    first.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.stop("pause"))
    saved = first.run(DATA, max_epochs=2).state_dict()
    state = State()
    state.load_state_dict(saved)
    assert build().run(DATA, max_epochs=2, state=state).metrics["total/samples"] == 18


def test_what_cannot_count_is_refused():
    with pytest.raises(TypeError, match="needs functions of the batch"):
        Totals({"samples": 3})
