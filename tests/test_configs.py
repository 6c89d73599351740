"""Runs that are built from configs and by samplers, which know nothing of Camshaft."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import ConfigKeyError, ValidationError
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from camshaft import Engine, Events, Stage, supervised
from camshaft.handlers import Checkpoint, Journal, LRSchedule, WandB, best, checkpoints, latest

CONFIG = """
lr: 0.1
width: 4
model: {_target_: torch.nn.Linear, in_features: "${width}", out_features: 1}
optimizer: {_target_: torch.optim.SGD, _partial_: true, lr: "${lr}"}
scheduler: {_target_: torch.optim.lr_scheduler.StepLR, _partial_: true, step_size: 1, gamma: 0.5}
engine:
  _target_: camshaft.supervised
  loss_fn: {_target_: torch.nn.MSELoss}
  accumulate: 2
directory: ???
handlers:
  - {_target_: camshaft.handlers.ClipGradNorm, _args_: [1.0]}
  - _target_: camshaft.handlers.Checkpoint
    directory: "${directory}"
    keep: {_target_: camshaft.handlers.latest, _args_: [3]}
    resume: true
"""


def build(config):
    model = instantiate(config.model)
    optimizer = instantiate(config.optimizer)(model.parameters())
    engine = instantiate(config.engine, model, optimizer)
    if "scheduler" in config:
        engine.add(LRSchedule(instantiate(config.scheduler)))
    engine.add(*instantiate(config.handlers, _convert_="all"))
    return engine.add(Journal(config.directory, config=config))


def journal_of(directory):
    return json.loads(Path(directory, "journal.jsonl").read_text().splitlines()[0])


def test_a_composed_config_builds_an_engine_and_is_saved_with_its_overrides(tmp_path):
    (tmp_path / "train.yaml").write_text(CONFIG)
    with initialize_config_dir(str(tmp_path), version_base=None):
        overrides = ["lr=0.05", f"directory={tmp_path}/run", "engine.accumulate=1", "+seed=3"]
        config = compose("train", [*overrides, "~scheduler"])
    engine = build(config)
    data = [(torch.ones(2, 4), torch.ones(2, 1))] * 4
    assert engine.run(data, max_epochs=2).step == 8
    assert isinstance(engine.handlers["Checkpoint"], Checkpoint)
    saved = journal_of(config.directory)["config"]
    assert saved["lr"] == saved["optimizer"]["lr"] == 0.05  # what it refers to is resolved
    assert saved["model"]["in_features"] == 4
    assert (saved["seed"], "scheduler" in saved) == (3, False)


def test_the_saved_config_builds_the_same_run_again(tmp_path):
    config = OmegaConf.merge(OmegaConf.create(CONFIG), {"directory": str(tmp_path / "run")})
    data = [(torch.ones(2, 4), torch.ones(2, 1))] * 4
    first = build(config).run(data, max_epochs=1)
    assert (first.step, first.metrics["lr"]) == (2, 0.05)
    again = OmegaConf.create(journal_of(config.directory)["config"])
    assert again == OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    second = build(again).run(data, max_epochs=2)
    assert (second.iteration, second.metrics["lr"]) == (8, 0.0125)


PARTS = """
schedule:
  _target_: camshaft.handlers.LRSchedule
  scheduler:
    _target_: camshaft.handlers.schedules.Schedule.then
    self: {_target_: camshaft.handlers.schedules.warmup, length: 2}
    other: {_target_: camshaft.handlers.schedules.cosine, final: 0.1}
groups:
  _target_: camshaft.handlers.LRSchedule
  _convert_: all
  scheduler: [{_target_: camshaft.handlers.schedules.hold}]
plateau:
  _target_: camshaft.handlers.LRSchedule
  scheduler: {_target_: torch.optim.lr_scheduler.ReduceLROnPlateau, _partial_: true, patience: 1}
  metric: loss
keep:
  _target_: operator.or_
  _convert_: all
  _args_:
  - {_target_: camshaft.handlers.latest, count: 2}
  - {_target_: camshaft.handlers.best, count: 1, metric: loss}
when:
  _target_: operator.or_
  _convert_: all
  _args_:
  - {_target_: camshaft.Events.EPOCH_COMPLETED}
  - {_target_: camshaft.Events.ITERATION_COMPLETED, at: [3, 5]}
"""


def test_schedules_claims_and_triggers_are_made_by_a_config(tmp_path):
    parts = {name: instantiate(each) for name, each in OmegaConf.create(PARTS).items()}
    assert repr(parts["schedule"].scheduler) == "warmup(2).then(cosine(0.1))"
    assert parts["keep"] == latest(2) | best(1, "loss")
    assert parts["when"] == Events.EPOCH_COMPLETED | Events.ITERATION_COMPLETED(at=(3, 5))
    model = torch.nn.Linear(4, 1)
    for name in ("schedule", "groups", "plateau"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        engine = supervised(model, optimizer, torch.nn.MSELoss())
        override = OmegaConf.create(["optimizer.lr"])
        directory = tmp_path / name
        checkpoint = Checkpoint(directory, keep=parts["keep"], when=parts["when"])
        engine.add(parts[name], checkpoint)
        assert engine.run([(torch.ones(2, 4), torch.ones(2, 1))] * 4, max_epochs=2).step == 8
        again = supervised(model, optimizer, torch.nn.MSELoss()).add(
            instantiate(OmegaConf.create(PARTS)[name]),
            Checkpoint(directory, resume=True, override=override),
        )
        assert again.run([(torch.ones(2, 4), torch.ones(2, 1))] * 4, max_epochs=2).step == 8


def test_hyper_parameters_of_a_config_reach_the_logs_as_plain_values(tmp_path):
    config = OmegaConf.create({"lr": 0.1, "model": {"sizes": [8, 8], "path": "${lr}"}})
    logger = WandB("tests", directory=tmp_path, hparams=config)
    assert logger.config == {"lr": 0.1, "model": {"sizes": [8, 8], "path": 0.1}}
    assert type(logger.config["model"]["sizes"]) is list


@dataclass
class Options:
    lr: float = 0.1
    name: str = MISSING
    sizes: list[int] = field(default_factory=lambda: [8, 8])
    inner: Any = None


def test_structured_configs_are_saved_and_what_is_missing_is_said(tmp_path):
    config = OmegaConf.merge(OmegaConf.structured(Options), OmegaConf.from_dotlist(["lr=0.5"]))
    assert Journal(tmp_path, config=config).config == {
        **{"lr": 0.5, "name": "<MissingMandatoryValue>", "sizes": (8, 8), "inner": None}
    }
    OmegaConf.set_readonly(config, True)
    assert Journal(tmp_path, config=config).config["lr"] == 0.5


def test_a_wrong_config_is_refused_before_anything_runs():
    with pytest.raises(ValidationError):
        OmegaConf.merge(OmegaConf.structured(Options), {"lr": "fast"})
    with pytest.raises(ConfigKeyError):
        OmegaConf.merge(OmegaConf.structured(Options), {"rate": 1})
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    settings = {"_target_": "camshaft.supervised", "accumulate": 0}
    with pytest.raises(InstantiationException, match="accumulate"):
        instantiate(settings, model, optimizer, torch.nn.MSELoss())


SCRIPT = """
import hydra, torch
from omegaconf import OmegaConf
from camshaft import Engine
from camshaft.handlers import Journal

@hydra.main(version_base=None, config_path=None, config_name="train")
def main(config):
    directory = hydra.core.hydra_config.HydraConfig.get().runtime.output_dir
    engine = Engine(lambda state, batch: batch, Journal(directory, config=config))
    engine.run([1], max_epochs=config.epochs)

hydra.core.config_store.ConfigStore.instance().store("train", {"epochs": 1, "lr": 0.1})
main()
"""


def test_a_sweep_of_hydras_gives_each_run_a_directory_and_its_config(processes, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    sweep = ["hydra.sweep.dir=out", "hydra.sweep.subdir=${hydra.job.override_dirname}"]
    script = tmp_path / "train.py"
    processes.run(script, "-m", "lr=0.1,0.2", "epochs=2", *sweep, cwd=tmp_path)
    saved = {path.parent.name: journal_of(path.parent) for path in tmp_path.glob("out/*/*.jsonl")}
    assert {name: line["config"]["lr"] for name, line in saved.items()} == {
        "epochs=2,lr=0.1": 0.1,
        "epochs=2,lr=0.2": 0.2,
    }


class Root(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, input):
        return (self.weight * input).sqrt()  # of 0: an infinite slope, times 0


def test_anomaly_mode_for_a_stretch_names_what_made_the_first_nan():
    model = Root()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, lambda prediction, target: (prediction * target).sum())
    data = [(torch.zeros(2), torch.zeros(2))] * 4
    with torch.no_grad():
        model.weight.fill_(1.0)
    state = engine.run([(torch.ones(2), torch.ones(2))] * 2, max_iterations=2)
    with (
        torch.autograd.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
        pytest.raises(RuntimeError, match="returned nan values") as raised,
    ):
        engine.run(data, state=state, max_iterations=4)
    assert "iteration 3" in "".join(raised.value.__notes__)
    assert not torch.is_anomaly_enabled()


class LikeLengths:
    """Batches of neighbours by length, in random order: as in docs/guides/text.md."""

    def __init__(self, lengths, batch_size):
        self.lengths, self.batch_size = lengths, batch_size
        self.generator = torch.Generator().manual_seed(0)

    def __iter__(self):
        noise = torch.rand(len(self.lengths), generator=self.generator)
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], noise[i]))
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        yield from (batches[i] for i in torch.randperm(len(batches), generator=self.generator))

    def __len__(self):
        return len(range(0, len(self.lengths), self.batch_size))


def seen_by(directory, stop_at=None):
    """The samples of each batch until the run ends."""
    texts = [torch.full((1 + number % 7,), float(number)) for number in range(23)]
    sampler = LikeLengths([*map(len, texts)], 4)
    batches = []
    engine = Engine(lambda state, batch: batches.append(batch[:, 0].tolist()))
    engine.add(Checkpoint(directory, resume=True))
    if stop_at is not None:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.interrupt("enough"))
    loader = DataLoader(
        texts, batch_sampler=sampler, collate_fn=lambda each: pad_sequence(each, batch_first=True)
    )
    engine.run(loader, max_epochs=3)
    return batches


@pytest.mark.quick(stop_at=3)
@pytest.mark.parametrize("stop_at", [1, 5, 6, 8, 12, 17])
def test_a_sampler_of_like_lengths_of_ones_own_resumes_exactly(stop_at, tmp_path):
    whole = seen_by(tmp_path / "whole")
    assert len(whole) == 18
    assert sorted(sum(whole[6:12], [])) == list(range(23))  # noqa: RUF017
    first = seen_by(tmp_path / "cut", stop_at)
    assert first + seen_by(tmp_path / "cut") == whole


def test_whoever_waits_in_saving_finds_the_checkpoint_on_the_disk_and_can_be_removed(tmp_path):
    found = []
    checkpoint = Checkpoint(tmp_path)
    engine = Engine(lambda state, batch: batch).add(checkpoint)

    def upload(state):
        checkpoint.wait(state)
        found.append(checkpoints(tmp_path).latest().path.name)

    engine.on(Events.SAVING, stage=Stage.REPORT)(upload)
    engine.on(Events.EPOCH_COMPLETED(at=2))(lambda state: engine.off(upload))
    engine.run([1, 2], max_epochs=3)
    assert found == ["iteration-0000000002"]
