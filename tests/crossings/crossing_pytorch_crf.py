"""pytorch-crf: a layer for sequences of tags."""

import torch
from crossing import Trial, adam, exact
from torch import nn

from camshaft import Engine, Update


@exact("pytorch-crf", "Models", "loss = -crf(scores, tags, mask=mask)  # in your step")
def test_tags(folder):
    """CRF behind an LSTM with dropout."""
    from torchcrf import CRF

    torch.manual_seed(0)
    body, head = nn.LSTM(8, 8, num_layers=2, dropout=0.2, batch_first=True), nn.Linear(8, 3)
    crf = CRF(3, batch_first=True)
    model = nn.ModuleList([body, head, crf])
    update = Update(adam(model))

    def step(state, batch):
        words, tags = batch
        loss = -crf(head(body(words)[0]), tags, reduction="mean")
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    data = torch.utils.data.TensorDataset(torch.randn(44, 5, 8), torch.randint(0, 3, (44, 5)))
    return Trial(engine, torch.utils.data.DataLoader(data, 4, shuffle=True))
