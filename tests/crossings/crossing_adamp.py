"""adamp: Adam without the growth of scale-invariant weights."""

from crossing import exact, trained_by


@exact("adamp", "Optimizers", "supervised(model, AdamP(model.parameters()), loss)")
def test_adamp(folder):
    """AdamP."""
    from adamp import AdamP

    return trained_by(lambda model: AdamP(model.parameters(), lr=0.01, weight_decay=0.01))
