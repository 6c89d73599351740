"""scikit-learn: folds, a run for each."""

import torch
from crossing import Trial, digits, exact, network
from torch.nn.functional import cross_entropy


@exact(
    "scikit-learn",
    "Data",
    'for k, (train, test) in enumerate(KFold(5).split(data)): Checkpoint(f"runs/{k}", resume=True)',
    warns="nothing to run",
    note="Each fold has a directory of its own. A fold that is done is not run again.",
)
def test_folds(folder):
    """KFold: the run of the first fold, and that of the second one, which is killed."""
    from sklearn.model_selection import KFold

    from camshaft import supervised
    from camshaft.handlers import Checkpoint

    data = digits(66)
    for k, (train, _) in enumerate(KFold(3, shuffle=True, random_state=0).split(data)):
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        engine = supervised(model, optimizer, cross_entropy)
        loader = torch.utils.data.DataLoader(torch.utils.data.Subset(data, train), 4, shuffle=True)
        if k == 1:
            return Trial(engine, loader)
        engine.add(Checkpoint(folder / f"{k}", resume=True)).run(loader, max_epochs=2)
