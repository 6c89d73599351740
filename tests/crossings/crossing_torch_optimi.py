"""torch-optimi: optimizers that may step in the backward pass."""

from crossing import exact, network, told, trained_by


@exact("torch-optimi", "Optimizers", "supervised(model, StableAdamW(model.parameters(), lr), loss)")
def test_stable_adamw(folder):
    """StableAdamW."""
    from optimi import StableAdamW

    return trained_by(lambda model: StableAdamW(model.parameters(), lr=0.01))


@exact(
    "torch-optimi",
    "Optimizers",
    "prepare_for_gradient_release(model, optimizer); supervised(model, optimizer, loss)",
)
def test_gradient_release(folder):
    """AdamW with gradient release, and a cosine of torch's."""
    from optimi import AdamW, prepare_for_gradient_release
    from torch.optim.lr_scheduler import CosineAnnealingLR

    def release(model):
        optimizer = AdamW(model.parameters(), lr=0.01, gradient_release=True)
        prepare_for_gradient_release(model, optimizer)
        return optimizer

    return trained_by(release, schedule=lambda optimizer: CosineAnnealingLR(optimizer, 33))


@told(
    "torch-optimi",
    "Optimizers",
    "leave ClipGradNorm out: the gradients are gone when it is called",
    match="ClipGradNorm",
)
def test_clipped(folder):
    """AdamW with gradient release beside ClipGradNorm."""
    from optimi import AdamW, prepare_for_gradient_release

    from camshaft.handlers import ClipGradNorm

    def release(model):
        optimizer = AdamW(model.parameters(), lr=0.01, gradient_release=True)
        prepare_for_gradient_release(model, optimizer)
        return optimizer

    return trained_by(release, network, ClipGradNorm(1.0))
