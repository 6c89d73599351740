"""Functional dropout that evaluations cannot switch off is told of; with `training=` it is not."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.functional import dropout2d

from camshaft import supervised


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.dropout = nn.Linear(2, 1), nn.Dropout(0.5)


class Always(Plain):
    def forward(self, x):
        return self.layer(F.dropout(x, 0.3))


class AlwaysByName(Plain):
    def forward(self, x):
        return self.layer(dropout2d(x[:, :, None, None]).flatten(1))


class AlwaysInLayer(Plain):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(Always())

    def forward(self, x):
        return self.inner(nn.functional.alpha_dropout(x, p=0.1))


class Right(Plain):
    def forward(self, x):
        x = F.dropout(x, 0.3, self.training)
        x = F.dropout(x, p=0.3, training=True)  # of Monte Carlo
        return self.layer(self.dropout(x))


class RightByIf(Plain):
    def forward(self, x):
        if self.training:
            x = F.dropout(x, 0.3)
        return self.layer(x)


class RightByRate(Plain):
    def forward(self, x):
        return self.layer(F.dropout(x, 0.3 if self.training else 0.0))


class AttentionAlways(Plain):
    """Torch's attention takes a rate and does not look at the mode."""

    def forward(self, x):
        x = F.scaled_dot_product_attention(x, x, x, dropout_p=0.3)
        return self.layer(F.scaled_dot_product_attention(x, x, x, None, self.dropout.p))


class AttentionRight(Plain):
    def __init__(self):
        super().__init__()
        self.rate = 0.0

    def forward(self, x):
        x = F.scaled_dot_product_attention(x, x, x, dropout_p=0.0)
        return self.layer(F.scaled_dot_product_attention(x, x, x, dropout_p=self.rate))


class AttentionByTrain(Plain):
    def __init__(self):
        super().__init__()
        self.train()

    def train(self, mode=True):
        self.rate = 0.3 if mode else 0.0
        return super().train(mode)

    def forward(self, x):
        return self.layer(F.scaled_dot_product_attention(x, x, x, dropout_p=self.rate))


class MadeInForward(Plain):
    def forward(self, x):
        x = nn.BatchNorm1d(2)(nn.Linear(2, 2)(nn.ReLU()(x)))
        return self.layer(nn.Dropout(0.3)(x))


class MadeRight(Plain):
    def forward(self, x):
        x = nn.BatchNorm1d(2, track_running_stats=False)(nn.Identity()(x))
        return self.layer(nn.LayerNorm(2)(x))


class Lazy:
    """Fails when it is asked for something, as a service that is not there."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __call__(self, x):
        return x


SERVICE = SERVICE_OF = Lazy()


class RightBesideAService(Plain):
    def forward(self, x):
        if x.isnan().any():
            SERVICE.warn(x)
        SERVICE if x.isnan().any() else SERVICE_OF(x)
        return self.layer(x)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Always, ["Always.forward writes F.dropout(x, 0.3)"]),
        (AlwaysByName, ["AlwaysByName.forward writes dropout2d(x[:, :, None, None])"]),
        (AlwaysInLayer, ["nn.functional.alpha_dropout(x, p=0.1)", "F.dropout(x, 0.3)"]),
        (Right, []),
        (RightByIf, []),
        (RightByRate, []),
        (RightBesideAService, []),
        (AttentionAlways, ["dropout_p=0.3), which drops", "self.dropout.p), which drops"]),
        (AttentionRight, []),
        (AttentionByTrain, []),
        (MadeInForward, ["nn.BatchNorm1d(2)(", "nn.Linear(2, 2)(", "nn.Dropout(0.3)(x), a new"]),
        (MadeRight, []),
    ],
)
def test_dropout_that_stays_on_in_evaluations_is_told_of(kind, says, recwarn):
    torch.manual_seed(0)
    model = kind()
    engine = supervised(model, torch.optim.SGD(model.parameters()), nn.functional.mse_loss)
    engine.run([(torch.ones(3, 2), torch.ones(3, 1))], max_epochs=1)
    told = [str(each.message) for each in recwarn]
    assert len(told) == len(says)
    assert all(each in text for each, text in zip(says, told, strict=True))
    assert all("self.training" in text or "make it in __init__" in text for text in told)
