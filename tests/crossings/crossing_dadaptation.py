"""dadaptation: optimizers that find their learning rate."""

from crossing import exact, trained_by


@exact("dadaptation", "Optimizers", "supervised(model, DAdaptAdam(model.parameters()), loss)")
def test_dadaptadam(folder):
    """DAdaptAdam, which finds its learning rate."""
    from dadaptation import DAdaptAdam

    return trained_by(lambda model: DAdaptAdam(model.parameters(), lr=1.0, weight_decay=0.01))
