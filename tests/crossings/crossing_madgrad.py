"""madgrad: an optimizer that averages gradients dually."""

from crossing import exact, trained_by


@exact("madgrad", "Optimizers", "supervised(model, MADGRAD(model.parameters()), loss)")
def test_madgrad(folder):
    """MADGRAD, which counts its steps in its state."""
    from madgrad import MADGRAD

    return trained_by(lambda model: MADGRAD(model.parameters(), lr=0.01))
