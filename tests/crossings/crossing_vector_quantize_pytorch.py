"""vector-quantize-pytorch: codebooks that move without an optimizer."""

import torch
from crossing import Trial, adam, digits, exact
from torch import nn

from camshaft import Engine, Update
from camshaft.handlers import EMA


@exact("vector-quantize-pytorch", "Models", "z, codes, commitment = quantizer(encoder(x))")
def test_codebook(folder):
    """A codebook that starts with k-means, is averaged, and replaces dead codes; a residual one."""
    from vector_quantize_pytorch import ResidualVQ, VectorQuantize

    torch.manual_seed(0)
    first = VectorQuantize(
        dim=8, codebook_size=6, kmeans_init=True, kmeans_iters=3, decay=0.8,
        threshold_ema_dead_code=1,
    )  # fmt: skip
    second = ResidualVQ(dim=8, num_quantizers=2, codebook_size=6, quantize_dropout=True)
    model = nn.ModuleList([nn.Linear(8, 8), first, second, nn.Linear(8, 8)])
    update = Update(adam(model))

    def step(state, batch):
        z, _, one = model[1](model[0](batch[0]))
        z, _, two = model[2](z[:, None])
        loss = nn.functional.mse_loss(model[3](z[:, 0]), batch[0]) + one.sum() + two.sum()
        update(state, loss)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    return Trial(engine.add(EMA(0.9)), torch.utils.data.DataLoader(digits(), 4, shuffle=True))
