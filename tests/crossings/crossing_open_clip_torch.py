"""open_clip_torch: pictures and texts in one space."""

import torch
from crossing import Trial, adam, exact

from camshaft import Engine, Update
from camshaft.handlers import EMA, ClipGradNorm


@exact("open_clip_torch", "Models", "loss = ClipLoss()(*model(images, texts))  # in your step")
def test_clip(folder):
    """A small CLIP, whose scale is held below a bound after each step."""
    from open_clip import CLIP, ClipLoss

    torch.manual_seed(0)
    pictures = {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8}
    texts = {"context_length": 8, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1}
    model, loss_fn = CLIP(16, {**pictures, "patch_dropout": 0.25}, texts), ClipLoss()
    update = Update(adam(model))

    def step(state, batch):
        images, texts = batch
        loss = loss_fn(*model(images, texts))
        update(state, loss)
        with torch.no_grad():
            model.logit_scale.clamp_(0, 2.7)
        state.metrics["loss"] = loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})
    rows = torch.rand(44, 3, 16, 16), torch.randint(1, 50, (44, 8))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*rows), 4, shuffle=True)
    return Trial(engine.add(ClipGradNorm(1.0), EMA(0.9)), data)
