"""The exponential moving average."""

import pytest
import torch
from torch import nn

from camshaft import Engine, Events
from camshaft.handlers import EMA


def averaged(values, **arguments):
    """The averages of a weight and a buffer that take these values, one a step."""
    model, found = nn.BatchNorm1d(1), []

    def process(state, value):
        model.weight.data.fill_(value)
        model.running_mean.fill_(value)
        state.fire(Events.STEP_COMPLETED)
        ema = engine.objects["ema"]
        found.append((ema.weight.item(), ema.running_mean.item()))

    engine = Engine(process, EMA(**arguments), objects={"model": model})
    engine.run(values, max_epochs=1)
    return found


def test_of_3_and_5_with_a_decay_of_a_half_it_is_4():
    assert averaged([3.0, 5.0], decay=0.5, warmup=False) == [(3, 3), (4, 4)]
    assert averaged([3.0, 5.0], decay=0.5, warmup=False, buffers=False) == [(3, 3), (4, 5)]


def test_the_warm_up_forgets_the_first_weights_soon():
    expected = average = torch.tensor(0.0)
    values = [0.0, *range(1, 30)]
    for count, value in enumerate(values[1:], 1):
        decay = min(0.7, (1 + count) / (10 + count))
        average = torch.lerp(average, torch.tensor(float(value)), 1 - decay)
    expected = average.item()
    assert averaged(map(float, values), decay=0.7)[-1] == (expected, expected)
    assert EMA(0.7).decay_after(19) < 0.7 == EMA(0.7).decay_after(20)


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_what_is_no_decay_is_refused(decay):
    with pytest.raises(ValueError, match=r"EMA\(decay=.*from 0 to less than 1"):
        EMA(decay)
