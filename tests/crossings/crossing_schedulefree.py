"""schedulefree: optimizers with a training and an evaluation mode."""

from crossing import exact, trained_by


@exact(
    "schedulefree", "Optimizers", "supervised(model, AdamWScheduleFree(model.parameters()), loss)"
)
def test_adamw(folder):
    """AdamWScheduleFree, whose evaluations use the averaged weights."""
    from schedulefree import AdamWScheduleFree

    return trained_by(lambda model: AdamWScheduleFree(model.parameters(), lr=0.01))
