"""came-pytorch: an optimizer with factored moments."""

from crossing import exact, trained_by


@exact("came-pytorch", "Optimizers", "supervised(model, CAME(model.parameters()), loss)")
def test_came(folder):
    """CAME."""
    from came_pytorch import CAME

    return trained_by(
        lambda model: CAME(
            model.parameters(), lr=0.01, betas=(0.9, 0.999, 0.9999), eps=(1e-30, 1e-16)
        )
    )
