"""heavyball: optimizers made for torch.compile."""

import os

from crossing import exact, told, trained_by

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # nothing is compiled here


@exact("heavyball", "Optimizers", "supervised(model, heavyball.SOAP(model.parameters()), loss)")
def test_soap(folder):
    """SOAP."""
    import heavyball

    return trained_by(lambda model: heavyball.SOAP(model.parameters(), lr=0.01))


@exact("heavyball", "Optimizers", "supervised(model, heavyball.Muon(model.parameters()), loss)")
def test_muon(folder):
    """Muon."""
    import heavyball

    return trained_by(lambda model: heavyball.Muon(model.parameters(), lr=0.01))


@exact("heavyball", "Optimizers", "supervised(model, heavyball.SFAdamW(model.parameters()), loss)")
def test_schedule_free(folder):
    """SFAdamW, which is schedule-free."""
    import heavyball

    return trained_by(lambda model: heavyball.SFAdamW(model.parameters(), lr=0.01))


@told("heavyball", "Optimizers", "heavyball.SOAP or Muon", match="running_lower_bound")
def test_psgd(folder):
    """PSGDKron, whose 64-bit bounds torch's `load_state_dict` makes 32 bits wide."""
    import heavyball

    return trained_by(lambda model: heavyball.PSGDKron(model.parameters(), lr=0.01))
