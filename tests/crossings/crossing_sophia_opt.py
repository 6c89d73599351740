"""sophia-opt: an optimizer that estimates the curvature from time to time."""

import torch
from crossing import Trial, digits, exact, network, trained_by
from torch.nn.functional import cross_entropy


@exact("sophia-opt", "Optimizers", "supervised(model, SophiaG(model.parameters()), loss)")
def test_sophia(folder):
    """SophiaG without estimates."""
    from sophia_opt import SophiaG

    return trained_by(lambda model: SophiaG(model.parameters(), lr=0.01))


@exact(
    "sophia-opt",
    "Optimizers",
    "engine.on(Events.STEP_COMPLETED(every=4))(estimate)",
    note="The labels of an estimate are drawn from the model, by the generators of the run.",
)
def test_estimates(folder):
    """SophiaG with an estimate of the curvature after each fourth step."""
    from sophia_opt import SophiaG

    from camshaft import Events, supervised

    model = network()
    optimizer = SophiaG(model.parameters(), lr=0.01)
    engine = supervised(model, optimizer, cross_entropy)

    @engine.on(Events.STEP_COMPLETED(every=4))
    def estimate(state):
        logits = model(state.batch[0])
        labels = torch.distributions.Categorical(logits=logits).sample()
        optimizer.zero_grad()
        cross_entropy(logits, labels).backward()
        optimizer.update_hessian()
        optimizer.zero_grad()

    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))
