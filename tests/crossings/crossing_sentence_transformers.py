"""sentence-transformers: losses of pairs of texts."""

import torch
from crossing import Trial, adam, exact
from torch import nn

from camshaft import Engine, Update


@exact("sentence-transformers", "Models", "loss = loss_fn([anchors, positives], None)")
def test_pairs(folder):
    """MultipleNegativesRankingLoss around a small model with random weights."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.dropout = nn.EmbeddingBag(50, 8), nn.Dropout(0.1)

        def forward(self, features):
            features["sentence_embedding"] = self.dropout(self.words(features["input_ids"]))
            return features

    torch.manual_seed(0)
    model = SentenceTransformer(modules=[Bag()], device="cpu")
    loss_fn = MultipleNegativesRankingLoss(model)
    update = Update(adam(model))

    def step(state, batch):
        pair = [{"input_ids": each} for each in batch]
        loss = loss_fn(pair, None)
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    rows = torch.randint(0, 50, (2, 44, 6)).unbind()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*rows), 4, shuffle=True)
    return Trial(engine, data)
