"""pytorch_optimizer: more than a hundred optimizers."""

import torch
from crossing import Trial, digits, exact, network, told, trained_by
from torch.nn.functional import cross_entropy


@exact("pytorch_optimizer", "Optimizers", "supervised(model, Lookahead(AdamW(...)), loss)")
def test_lookahead(folder):
    """Lookahead around AdamW, with a pull-back of the momentum."""
    from pytorch_optimizer import Lookahead

    return trained_by(
        lambda model: Lookahead(
            torch.optim.AdamW(model.parameters(), 0.01), k=4, pullback_momentum="pullback"
        )
    )


@exact("pytorch_optimizer", "Optimizers", "supervised(model, SOAP(model.parameters()), loss)")
def test_soap(folder):
    """SOAP, which rotates the moments."""
    from pytorch_optimizer import SOAP

    return trained_by(lambda model: SOAP(model.parameters(), lr=0.01, precondition_frequency=4))


@exact("pytorch_optimizer", "Optimizers", "supervised(model, AdEMAMix(model.parameters()), loss)")
def test_ademamix(folder):
    """AdEMAMix, whose coefficients follow the number of steps."""
    from pytorch_optimizer import AdEMAMix

    return trained_by(lambda model: AdEMAMix(model.parameters(), lr=0.01, t_alpha_beta3=20))


@exact(
    "pytorch_optimizer",
    "Optimizers",
    "update(state, loss(), closure=loss)",
    note="Without the closure it is an error of the library.",
)
def test_sam(folder):
    """SAM, which evaluates the loss again at a higher place."""
    from pytorch_optimizer import SAM

    from camshaft import Engine, Update

    torch.manual_seed(0)
    model = network()
    optimizer = SAM(model.parameters(), torch.optim.AdamW, lr=0.01, rho=0.05)
    update = Update(optimizer)

    def step(state, batch):
        def loss():
            return cross_entropy(model(batch[0]), batch[1])

        update(state, loss(), closure=loss)

    engine = Engine(step, update, objects={"model": model, "optimizer": optimizer})
    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))


@exact("pytorch_optimizer", "Optimizers", "supervised(model, MADGRAD(model.parameters()), loss)")
def test_madgrad(folder):
    """MADGRAD, whose state has a count beside those of parameters."""
    from pytorch_optimizer import MADGRAD

    return trained_by(lambda model: MADGRAD(model.parameters(), lr=0.01))


@exact("pytorch_optimizer", "Optimizers", "supervised(model, SCION(model.parameters()), loss)")
def test_scion(folder):
    """SCION, whose groups name norms by an enum: they stay the script's."""
    from pytorch_optimizer import SCION

    return trained_by(lambda model: SCION(model.parameters(), lr=0.01))


@told(
    "pytorch_optimizer",
    "Optimizers",
    "SOAP or Shampoo of the same library, whose states are tensors",
    match="PreConditioner",
)
def test_scalable_shampoo(folder):
    """ScalableShampoo, whose state holds objects of the library."""
    from pytorch_optimizer import ScalableShampoo

    return trained_by(lambda model: ScalableShampoo(model.parameters(), lr=0.01))
