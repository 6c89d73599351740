"""prodigyopt: an optimizer that finds its learning rate."""

from crossing import exact, trained_by


@exact("prodigyopt", "Optimizers", "supervised(model, Prodigy(model.parameters()), loss)")
def test_prodigy(folder):
    """Prodigy with safeguarded warm-up and a cosine of torch's."""
    from prodigyopt import Prodigy
    from torch.optim.lr_scheduler import CosineAnnealingLR

    return trained_by(
        lambda model: Prodigy(model.parameters(), safeguard_warmup=True, weight_decay=0.01),
        schedule=lambda optimizer: CosineAnnealingLR(optimizer, 33),
    )
