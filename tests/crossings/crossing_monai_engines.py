"""monai: its trainer, on the bridge from ignite's engine to Camshaft's."""

from types import SimpleNamespace

import torch
from crossing import Trial, adam, exact, network
from torch import nn


@exact(
    "monai",
    "Models",
    "ignite.engine.Engine = camshaft.handlers.bridges.ignite.Engine  # before importing MONAI",
    fresh=True,
    note="trainer.objects.update(model=model, optimizer=optimizer) names what it trains.",
)
def test_supervised_trainer(folder):
    """SupervisedTrainer with an evaluator, random transforms and MONAI's own DataLoader."""
    import ignite.engine

    from camshaft.handlers.bridges.ignite import Engine

    ignite.engine.Engine = Engine
    from monai.data import DataLoader, Dataset
    from monai.engines import SupervisedEvaluator, SupervisedTrainer
    from monai.handlers import ValidationHandler
    from monai.transforms import RandGaussianNoised
    from monai.utils import set_determinism

    set_determinism(0)
    rows = torch.randn(44, 8)
    rows = [{"image": row, "label": row[:4].argmax()} for row in rows]
    shuffle = torch.Generator().manual_seed(0)
    data = Dataset(rows, RandGaussianNoised("image", prob=0.5))
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=shuffle, num_workers=0)
    model = network()
    optimizer = adam(model)
    evaluator = SupervisedEvaluator("cpu", DataLoader(Dataset(rows[:20]), batch_size=6), model)
    trainer = SupervisedTrainer(
        "cpu",
        max_epochs=3,
        train_data_loader=loader,
        network=model,
        optimizer=optimizer,
        loss_function=nn.CrossEntropyLoss(),
        train_handlers=[ValidationHandler(1, evaluator)],
    )
    trainer.objects.update(model=model, optimizer=optimizer)

    def run(data, **limits):
        trainer.run()
        return trainer.state

    parts = {"objects": trainer.objects, "add": trainer.add, "on": trainer.native.on, "run": run}
    return Trial(SimpleNamespace(**parts), loader)
