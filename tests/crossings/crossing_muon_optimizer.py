"""muon-optimizer: Muon as its author gives it."""

from crossing import exact, trained_by


@exact(
    "muon-optimizer", "Optimizers", "supervised(model, SingleDeviceMuonWithAuxAdam(groups), loss)"
)
def test_with_adam(folder):
    """SingleDeviceMuonWithAuxAdam: Muon for matrices and Adam for the rest, in one optimizer."""
    from muon import SingleDeviceMuonWithAuxAdam

    def groups(model):
        matrices = [each for each in model.parameters() if each.ndim == 2]
        rest = [each for each in model.parameters() if each.ndim != 2]
        return [
            {"params": matrices, "use_muon": True, "lr": 0.02},
            {"params": rest, "use_muon": False, "lr": 0.01},
        ]

    return trained_by(lambda model: SingleDeviceMuonWithAuxAdam(groups(model)))
