"""torchmetrics: metrics, collections and wrappers, in training and in evaluations."""

import torch
from crossing import Trial, adam, digits, exact, held_out, network, told, trained_by
from torch import nn

from camshaft import Engine, Events, Update
from camshaft.handlers import Metrics


@exact(
    "torchmetrics",
    "Metrics",
    "Metrics(MetricCollection([MulticlassAccuracy(4), MulticlassAUROC(4)]))",
)
def test_collection(folder):
    """A MetricCollection with groups, of counts and of metrics that keep all predictions."""
    from torchmetrics import MetricCollection
    from torchmetrics.classification import (
        MulticlassAccuracy,
        MulticlassAUROC,
        MulticlassConfusionMatrix,
        MulticlassF1Score,
    )

    kinds = (MulticlassAccuracy, MulticlassF1Score, MulticlassConfusionMatrix, MulticlassAUROC)
    metrics = Metrics(MetricCollection([kind(4) for kind in kinds]))
    return trained_by(adam, network, metrics, held_out())


@exact(
    "torchmetrics",
    "Metrics",
    'Metrics({"cer": CharErrorRate()}, select=texts)',
)
def test_text(folder):
    """CharErrorRate and BLEUScore of texts that are made of the output."""
    from torchmetrics.text import BLEUScore, CharErrorRate

    def texts(output):
        rows = [output.prediction.argsort(1), output.target[:, None].expand(-1, 4)]
        spoken, meant = ([" ".join(f"word{n}" for n in row) for row in each] for each in rows)
        return spoken, [[each] for each in meant]

    def first(output):
        spoken, meant = texts(output)
        return spoken, [each[0] for each in meant]

    bleu = Metrics({"bleu": BLEUScore(n_gram=1)}, select=texts)
    return trained_by(adam, network, bleu, Metrics({"cer": CharErrorRate()}, select=first))


@exact("torchmetrics", "Metrics", 'Metrics({"map": RetrievalMAP()}, select=queries)')
def test_retrieval(folder):
    """RetrievalMAP, whose update takes a third argument."""
    from torchmetrics.retrieval import RetrievalMAP

    def queries(output):
        scores = output.prediction.flatten()
        hits = nn.functional.one_hot(output.target, 4).flatten()
        return scores, hits, torch.arange(len(output.target)).repeat_interleave(4)

    metrics = Metrics({"map": RetrievalMAP()}, select=queries)
    return trained_by(adam, network, metrics, held_out())


@exact("torchmetrics", "Metrics", "running.update(loss)  # in a step of your own")
def test_by_hand(folder):
    """RunningMean over a window and MeanMetric, updated by the step and never named."""
    from torchmetrics import MeanMetric
    from torchmetrics.wrappers import Running

    model, running, mean = network(), Running(MeanMetric(), window=5), MeanMetric()
    update = Update(adam(model))

    def step(state, batch):
        features, classes = batch
        loss = nn.functional.cross_entropy(model(features), classes)
        update(state, loss)
        running.update(loss.detach())
        mean.update(loss.detach())
        state.metrics["running"] = running.compute()

    engine = Engine(step, update, objects={"model": model, "optimizer": update.optimizer})

    @engine.on(Events.EPOCH_COMPLETED)
    def write(state):
        state.metrics["mean"] = mean.compute()
        mean.reset()

    return Trial(engine, torch.utils.data.DataLoader(digits(), 4, shuffle=True))


@exact("torchmetrics", "Metrics", "fid.update(images, real=True)  # in a step of your own")
def test_fid(folder):
    """FrechetInceptionDistance with a network of your own for the features."""
    from torchmetrics.image.fid import FrechetInceptionDistance

    torch.manual_seed(0)
    inner = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 6, dtype=torch.float32))
    fid = FrechetInceptionDistance(inner, normalize=True, input_img_size=(3, 8, 8))
    generator = nn.Sequential(nn.Linear(8, 3 * 64), nn.Sigmoid())
    update = Update(adam(generator))

    def step(state, batch):
        (real,) = batch
        fake = generator(torch.randn(len(real), 8)).view(-1, 3, 8, 8)
        update(state, (fake.mean(0) - real.mean(0)).square().mean())
        fid.update(real, real=True)
        fid.update(fake.detach(), real=False)

    engine = Engine(step, update, objects={"model": generator, "optimizer": update.optimizer})

    @engine.on(Events.EPOCH_COMPLETED)
    def write(state):
        state.metrics["fid"] = fid.compute()
        fid.reset()

    images = torch.rand(44, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(images)
    return Trial(engine, torch.utils.data.DataLoader(data, 4, shuffle=True))


@told(
    "torchmetrics",
    "Metrics",
    'Metrics({"accuracy": MulticlassAccuracy(4)}); History()["accuracy"] has all values',
    match="MinMaxMetric",
)
def test_min_max(folder):
    """MinMaxMetric, whose least and greatest value are of several evaluations."""
    from torchmetrics import MinMaxMetric
    from torchmetrics.classification import MulticlassAccuracy

    metrics = Metrics({"accuracy": MinMaxMetric(MulticlassAccuracy(4))})
    return trained_by(adam, network, metrics, held_out())


@told(
    "torchmetrics",
    "Metrics",
    'Metrics({"accuracy": MulticlassAccuracy(4)}); History()["accuracy"] has all values',
    match="MetricTracker",
)
def test_tracker(folder):
    """MetricTracker, which keeps one metric for each epoch."""
    from torchmetrics import MetricTracker
    from torchmetrics.classification import MulticlassAccuracy

    metrics = Metrics({"accuracy": MetricTracker(MulticlassAccuracy(4))})
    return trained_by(adam, network, metrics, held_out())
