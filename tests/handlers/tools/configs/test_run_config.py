"""`camshaft run`: a YAML file is a script, whose run is killed, resumed, changed and refused."""

import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import parts_of_digits
import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from camshaft import Events, loader, seed_everything, supervised
from camshaft.__main__ import main
from camshaft.handlers import (
    ClipGradNorm,
    JSONLines,
    LRSchedule,
    Validate,
    best,
    checkpoints,
    latest,
    run_config,
)

PARTS = Path(__file__).with_name("parts_of_digits.py")
CONFIG = """
directory: ???
seed: 3
lr: 0.01
model: {_target_: parts_of_digits.network, hidden: 16}
optimizer: {_target_: torch.optim.AdamW, _partial_: true, lr: "${lr}", betas: [0.9, 0.95]}
data:
  train:
    _target_: camshaft.loader
    dataset: {_target_: parts_of_digits.samples, part: "${train_part}"}
    batch_size: 32
    training: true
  validation:
    _target_: parts_of_digits.batches
    samples:
      _target_: parts_of_digits.samples
      part: {_target_: parts_of_digits.Part, first: 300, last: 400}
    size: 50
engine:
  _target_: camshaft.supervised
  model: ${model}
  optimizer: ${optimizer}
  loss_fn: {_target_: torch.nn.CrossEntropyLoss}
  accumulate: 2
handlers:
  clip: {_target_: camshaft.handlers.ClipGradNorm, max_norm: 1.0}
  rate:
    _target_: camshaft.handlers.LRSchedule
    scheduler: {_target_: parts_of_digits.one_cycle, _partial_: true, max_lr: "${lr}"}
  validate: {_target_: camshaft.handlers.Validate, data: "${data.validation}"}
  save:
    _target_: camshaft.handlers.Checkpoint
    directory: ${directory}
    when: {_target_: camshaft.Events.ITERATION_COMPLETED, every: 4, last: true}
    resume: true
  rows:
    _target_: camshaft.handlers.JSONLines
    path: ${directory}/rows.jsonl
    when: {_target_: camshaft.Events.ITERATION_COMPLETED, every: 1}
run: {data: "${data.train}", max_epochs: 3}
train_part: {_target_: parts_of_digits.Part, first: 0, last: 300}
"""
COMMAND = "from camshaft.__main__ import main\nraise SystemExit(main())"


def script(directory):
    """The script that the config stands for."""
    seed_everything(3)
    model = parts_of_digits.network(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.95))
    part = parts_of_digits.Part(0, 300)
    train = loader(parts_of_digits.samples(part), 32, training=True)
    samples = parts_of_digits.samples(parts_of_digits.Part(300, 400))
    engine = supervised(model, optimizer, nn.CrossEntropyLoss(), accumulate=2)
    engine.add(
        ClipGradNorm(1.0),
        LRSchedule(lambda optimizer, horizon: parts_of_digits.one_cycle(optimizer, horizon, 0.01)),
        Validate(parts_of_digits.batches(samples, 50)),
        JSONLines(directory / "rows.jsonl", when=Events.ITERATION_COMPLETED(every=1)),
    )
    engine.run(train, max_epochs=3)
    return model


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts_of_digits.MADE.clear()
    shutil.copy(PARTS, tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path / "config.yaml"


def weights(directory):
    return checkpoints(directory).latest().state_dict("model")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_a_config_trains_as_the_script_that_it_stands_for(path, tmp_path):
    assert main(["run", str(path), f"directory={tmp_path}/a"]) == 0
    (tmp_path / "b").mkdir()
    model = script(tmp_path / "b")
    assert same(weights("a"), model.state_dict())
    written = Path("a/rows.jsonl").read_text()
    assert written == Path("b/rows.jsonl").read_text()
    assert written.count("\n") == 33  # three of validations
    assert parts_of_digits.MADE == [16, 16]  # one model a run, for the optimizer and the engine


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("SIGKILL", -9), ("SIGINT", 130)])
def test_the_same_command_goes_on_after_a_kill_and_a_stop(processes, path, tmp_path, name, code):
    handlers = f"""handlers:
  signal: {{_target_: parts_of_digits.Signalled, at: 13, name: {name}}}
  stop: {{_target_: camshaft.handlers.StopOnSignal}}
"""
    path.write_text(CONFIG.replace("handlers:\n", handlers))
    whole = (COMMAND, "run", path, "~handlers.signal", "directory=whole")
    command = (COMMAND, "run", path, "directory=cut")
    processes.run(*whole, cwd=tmp_path)
    assert processes.run(*command, cwd=tmp_path, code=code).returncode == code
    assert len(Path("cut/rows.jsonl").read_text().splitlines()) < 20
    processes.run(*command, cwd=tmp_path)
    assert same(weights("cut"), weights("whole"))
    assert Path("cut/rows.jsonl").read_bytes() == Path("whole/rows.jsonl").read_bytes()
    first, *_, last = map(json.loads, Path("cut/rows.jsonl").read_text().splitlines())
    assert (first["iteration"], last["iteration"]) == (1, 30)


LITTLE = ["run.max_epochs=1", "~handlers.rate"]


def test_the_resolved_config_lies_beside_the_run_and_is_a_config_of_the_same_run(path):
    overrides = [*LITTLE, "lr=1e-3", "~handlers.clip", "optimizer.betas=[0.5,0.9]"]
    assert main(["run", str(path), "directory=a", *overrides]) == 0
    saved = OmegaConf.load("a/resolved.yaml")
    first, *_ = map(json.loads, Path("a/journal.jsonl").read_text().splitlines())
    assert first["config"]["lr"] == first["config"]["optimizer"]["lr"] == saved.optimizer.lr == 1e-3
    assert first["environment"]["script"] == "config.yaml"
    assert saved.optimizer.betas == [0.5, 0.9]
    assert "clip" not in saved.handlers
    assert "lr" not in saved  # to change it would change nothing
    assert OmegaConf.to_container(saved)["engine"]["model"] == "${model}"
    assert main(["run", "a/resolved.yaml", "run.max_epochs=2"]) == 0
    assert main(["run", str(path), "directory=b", *overrides, "run.max_epochs=2"]) == 0
    assert OmegaConf.load("a/resolved.yaml").run.max_epochs == 2
    assert same(weights("a"), weights("b"))


def test_a_resolved_config_in_another_directory_is_refused_while_its_handlers_stay(path, capsys):
    assert main(["run", str(path), "directory=a", *LITTLE]) == 0
    before = Path("a/LATEST").read_text()
    capsys.readouterr()
    assert main(["run", "a/resolved.yaml", "directory=b", "run.max_epochs=2"]) == 2
    assert "handlers.save.directory: a is in a, and not in directory=b" in capsys.readouterr().err
    assert (Path("a/LATEST").read_text(), Path("b").exists()) == (before, False)


def test_another_config_is_refused_and_changes_nothing(path):
    run_config(path, ["directory=a", *LITTLE])
    before = Path("a/resolved.yaml").read_text()
    other = ["directory=a", *LITTLE, "lr=0.1", "run.max_epochs=2"]
    with pytest.raises(ValueError, match=r"optimizer.lr: 0.01 in the checkpoint -> 0.1"):
        run_config(path, other)
    assert Path("a/resolved.yaml").read_text() == before
    engine, state = run_config(path, [*other, "+handlers.save.override=[optimizer.lr]"])
    assert state.iteration == 20
    assert engine.objects["optimizer"].param_groups[0]["lr"] == 0.1


def test_each_choice_of_settings_has_a_directory(path):
    """By Hydra's own name for it."""
    own = "directory: runs/${hydra.job.override_dirname}"
    path.write_text(CONFIG.replace("directory: ???", own))
    exclude = "hydra.job.config.override_dirname.exclude_keys=[run.max_epochs,handlers.rate]"
    for lr in ("0.1", "0.2"):
        run_config(path, ["seed=1", f"lr={lr}", *LITTLE, exclude])
    assert sorted(each.name for each in Path("runs").iterdir()) == [
        "lr=0.1,seed=1",
        "lr=0.2,seed=1",
    ]


def test_a_trial_of_a_few_batches_and_overrides_at_any_place_of_the_command(path):
    command = ["run", str(path), "directory=a", "--max-batches", "2", *LITTLE]
    assert main(command) == 0
    assert checkpoints("a").latest().path.name == "iteration-0000000002"
    saved = OmegaConf.to_container(OmegaConf.load("a/resolved.yaml").run)
    assert saved == {"data": "${data.train}", "max_epochs": 1, "max_batches": 2}
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--max-batch"])
    with pytest.raises(SystemExit, match="2"):
        main(["verify", "a", "lr=1"])


SHARED = """
directory: a
handlers:
- _target_: parts_of_digits.Kept
  things:
    model: ${model}
    second: ${optimizers.second}
    part: ${parts[1]}
    same: [{inside: "${...part}"}]
    function: ${function}
    waiting: ${waiting}
    number: ${parts.1.last}
    keep:
      _target_: operator.or_
      _args_:
      - {_target_: camshaft.handlers.latest}
      - {_target_: camshaft.handlers.best, count: 1, metric: loss}
    schedule:
      _target_: camshaft.handlers.schedules.Schedule.then
      self: {_target_: camshaft.handlers.schedules.warmup, length: 5}
      other: {_target_: camshaft.handlers.schedules.cosine, final: 0.1}
    loss: ${engine.loss_fn}
    home: ${oc.env:HOME}
    text: 'a \\${literal}'
    lazy: {_target_: builtins.dict, _recursive_: false, a: {_target_: builtins.list}}
engine:
  _target_: camshaft.supervised
  model: ${model}
  optimizer: ${optimizers}
  loss_fn: {_target_: torch.nn.CrossEntropyLoss}
optimizers:
  first: {_target_: parts_of_digits.of_layer, model: "${model}", number: 0}
  second: {_target_: parts_of_digits.of_layer, model: "${model}", number: 3}
parts: [3, {_target_: parts_of_digits.Part, first: 0, last: 40}]
function: {_target_: hydra.utils.get_method, path: torch.nn.functional.cross_entropy}
waiting: {_target_: torch.optim.SGD, _partial_: true, lr: 0.1}
model: {_target_: parts_of_digits.network, hidden: 4}
samples: {_target_: parts_of_digits.samples, part: "${parts[1]}"}
run: {data: {_target_: parts_of_digits.batches, samples: "${samples}", size: 10}, max_epochs: 1}
"""


def test_what_is_referred_to_is_the_same_object_wherever_it_lies(path):
    path.write_text(SHARED)
    for each in (path, "a/resolved.yaml"):
        engine, _ = run_config(each)
        kept = engine.handlers["Kept"].things
        assert kept["model"] is engine.objects["model"]
        assert kept["second"] is engine.objects["second"]
        assert isinstance(kept["loss"], nn.CrossEntropyLoss)
        assert kept["part"] is kept["same"][0]["inside"]
        assert (type(kept["same"]), type(kept["same"][0])) == (list, dict)
        assert kept["function"] is nn.functional.cross_entropy
        assert kept["waiting"](engine.objects["model"].parameters()).defaults["lr"] == 0.1
        assert (kept["number"], kept["text"]) == (40, "a ${literal}")
        assert kept["home"] == os.environ["HOME"]
        assert kept["keep"] == latest() | best(1, "loss")
        assert repr(kept["schedule"]) == "warmup(5).then(cosine(0.1))"
        assert kept["lazy"] == {"a": {"_target_": "builtins.list"}}
    assert parts_of_digits.MADE == [4, 4]


RANKS = """
import sys
sys.path.insert(0, ".")
import parts_of_digits, torch
from camshaft import loader, ranks, seed_everything, supervised
from camshaft.handlers import ClipGradNorm, Export

with ranks.process_group():
    seed_everything(3)
    model = parts_of_digits.network(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.95))
    train = loader(parts_of_digits.samples(parts_of_digits.Part(0, 300)), 32, training=True)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    engine = supervised(wrapped, optimizer, torch.nn.CrossEntropyLoss(), accumulate=2)
    engine.add(ClipGradNorm(1.0), Export("b"))
    engine.run(train, max_epochs=3)
"""


@pytest.mark.slow
def test_on_two_ranks_it_is_the_script_on_two_ranks(processes, path, tmp_path):
    ddp = "engine.model={_target_:torch.nn.parallel.DistributedDataParallel,module:'${model}'}"
    overrides = ["directory=a", ddp, "~handlers.rate", "~handlers.validate"]
    processes.run_ranks(2, COMMAND, "run", path, *overrides, cwd=tmp_path)
    processes.run_ranks(2, RANKS, cwd=tmp_path)
    assert same(weights("a"), weights("b"))
    first, *_ = map(json.loads, Path("a/journal.jsonl").read_text().splitlines())
    assert first["environment"]["ranks"] == "2"
    assert OmegaConf.load("a/resolved.yaml").seed == 3


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seed: 3", "sed: 3", "sed: 3"),
        ("network, hidden", "network, hiden", "hiden: 16"),
        ("max_epochs: 3}", "max_epoch: 3}", "max_epoch: 3"),
        ('"${lr}", betas', '"${rate}", betas', '"${rate}"'),
    ],
)
def test_the_line_of_what_is_wrong_is_named(path, capsys, old, new, words):
    path.write_text(text := CONFIG.replace(old, new))
    (number,) = (n for n, line in enumerate(text.splitlines(), 1) if words in line)
    assert main(["run", str(path), "directory=a"]) == 2
    assert capsys.readouterr().err.startswith(f"camshaft: {path}, line {number}: ")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("optimizer.rate=1", "Could not override 'optimizer.rate'."),
        ("sed=1", "there is no 'sed'; did you mean 'seed'?"),
        ("~handlers.clipp", "there is no 'handlers.clipp'; did you mean 'handlers.clip'?"),
        ("directory=runs/lr=1", "put the value into quotes: \"directory='runs/lr=1'\""),
        ("lr", "lr: needs a value, as in lr=1; ~lr leaves it out"),
    ],
)
def test_a_wrong_override_is_one_line(path, capsys, override, said):
    assert main(["run", str(path), "directory=a", override]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_no_config_is_one_line(tmp_path, capsys):
    (tmp_path / "bytes.yaml").write_bytes(b"lr: \xff\n")
    (tmp_path / "other.yml").write_text("lr: 1\n")
    (tmp_path / "folder.yaml").mkdir()
    said = {
        "none.yaml": "there is no such file",
        "folder.yaml": "there is no such file",
        "other.yml": "its name has to end in .yaml, for Hydra",
        "bytes.yaml": "it is no text in UTF-8",
    }
    for name, words in said.items():
        assert main(["run", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err.startswith(f"camshaft: {tmp_path / name}: {words}")


@pytest.mark.parametrize("count", ["0", "-1", "few"])
def test_a_trial_of_no_batches_is_a_wrong_command_line(path, capsys, count):
    with pytest.raises(SystemExit, match="2"):
        main(["run", str(path), "directory=a", "--max-batches", count])
    assert f"--max-batches: {count!r} is not a whole number of 1 or" in capsys.readouterr().err
    assert not Path("a").exists()


RUN = 'run: {data: "${data.train}", max_epochs: 3}'


@pytest.mark.quick(old=17)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seed: 3", "sed: 3", "sed: nothing uses it; did you mean 'seed'?"),
        ("seed: 3", "max_epochs: 3", "max_epochs: nothing uses it; write run.max_epochs"),
        ("engine:", "trainer:", "lacks engine; a run needs directory, engine, run"),
        ("${lr}", "${rate}", "Interpolation key 'rate' not found full_key: optimizer.lr"),
        ("accumulate: 2", "acumulate: 2",
         "engine: camshaft.supervised has no argument 'acumulate'; did you mean 'accumulate'?"),
        ("max_norm: 1.0", "at: 1.0",
         "handlers.clip: camshaft.handlers.ClipGradNorm has no argument 'at'; it has max_norm"),
        ("_partial_: true, lr", "lr",
         "optimizer: torch.optim.AdamW: missing a required argument: 'params'"),
        ("handlers.ClipGradNorm", "handlers.ClipGradNom",
         "_target_: camshaft.handlers has no 'ClipGradNom'; did you mean 'ClipGradNorm'?"),
        ("parts_of_digits.network", "part_of_digits.network",
         "model._target_: there is no module 'part_of_digits', here or installed"),
        ("max_epochs: 3}", "max_epoch: 3}", "run: engine.run has no argument 'max_epoch'; did you"),
        ("lr: 0.01", 'lr: "${seed"', "line 4: no viable alternative at input '${seed'"),
        ("lr: 0.01", "lr: " + "[" * 3000 + "]" * 3000, ": it is nested too deeply, or includes"),
        ("lr: 0.01", "lr: 1\ndefaults: [config, _self_]", ": it is nested too deeply, or includes"),
        ("lr: 0.01", "lr: 1\ndefaults: 3", ": Invalid defaults list in 'config'"),
        ("lr: 0.01", "lr: 1\nnull: 3", ": Incompatible key type 'NoneType'"),
        ("lr: 0.01", "lr:\n\t- 1", "found character '\\t' that cannot start any token"),
        ("lr: 0.01", "lr: yes", "optimizer.lr: needs a number, and not True (YAML reads yes, no"),
        ("_partial_: true, lr", "_partial_: true, amsgrad: 'false', lr",
         "optimizer.amsgrad: needs true or false, and not the text 'false'"),
        (RUN, "run: text", "run: needs names and values, and not 'text'"),
        (RUN, "run:", ": lacks run; a run needs directory, engine, run"),
        (RUN, 'run: {data: "${data.train}"}', "run: needs one of max_epochs, max_iterations, max_"),
        (RUN, "run: {data: [], 1: 2}", "run: engine.run has no argument '1'"),
        (RUN, "run: {data: [], max_steps: -1}", "run.max_steps: needs a whole number, and not -1"),
        ("seed: 3", "seed: many", "line 3: seed: seed_everything('many'): needs a whole number"),
        ("directory: ???", "directory: [a]", "line 2: directory: needs a path, and not ['a']"),
        ("{_target_: parts_of_digits.network, hidden: 16}", "{_target_: math.pi}",
         "model._target_: math.pi cannot be called"),
        ("  clip:", "  odd: {_target_: builtins.dict}\n  clip:", "handlers.odd: gives a dict, and"),
        (CONFIG, "", ": lacks directory, engine, run"),
        ("hidden: 16", 'hidden: "${optimizer}"', "it refers to itself, perhaps by way of others"),
        ("camshaft.supervised", "builtins.dict", "engine: gives a dict, and not an Engine"),
        ("handlers.Validate, data", "handlers.Journal, directory", "leave it out"),
        ("run: {", "run: {{", "while parsing a flow mapping"),
        ("parts_of_digits.network", "parts_of_digits",
         "model._target_: parts_of_digits is a module; name what to call in it"),
        ("clip: {_target_", "clip: {_targt_",
         "handlers.clip._targt_: did you mean '_target_'? Keys of this form are Hydra's: _ta"),
        ("clip: {_target_: camshaft.handlers.ClipGradNorm, max_norm: 1.0}", "clip: {max_norm: 1.0}",
         "handlers.clip: is no handler; one has a _target_, such as camshaft.handlers."),
        ("_target_: camshaft.supervised", "target: x",
         "engine: needs a _target_, such as camshaft."),
        (CONFIG, "- 1", ": primary config 'config' must be a DictConfig, got ListConfig"),
    ],
)  # fmt: skip
def test_a_wrong_config_is_one_line_that_names_the_key(path, capsys, old, new, said):
    text, old = (each.replace("directory: ???", "directory: a") for each in (CONFIG, old))
    assert old in text
    path.write_text(text.replace(old, new))
    assert main(["run", str(path), *["--max-batches", "2"] * (old == RUN)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(rf"camshaft: {re.escape(str(path))}(, line \d+)?: ", line)
    assert said in " ".join(line.split())
    assert not Path("a").exists()


def test_a_second_start_with_other_settings_says_which_before_it_goes_on(path, caplog):
    run_config(path, ["directory=a", *LITTLE])
    assert "other settings" not in caplog.text
    same = ["directory=a", "~handlers.rate", "run.max_epochs=2"]
    run_config(path, same)
    assert "other settings" not in caplog.text  # a run may be longer than before
    other = ["directory=a", "~handlers.rate", "run.max_epochs=3"]
    run_config(path, [*other, "seed=4", "data.train.batch_size=50", "~handlers.clip"])
    (warning,) = (each for each in caplog.messages if "other settings" in each)
    assert warning == (
        "the run in a goes on with other settings than before: data.train.batch_size: 32 -> 50, "
        "handlers.clip._target_: camshaft.handlers.ClipGradNorm -> nothing, "
        "handlers.clip.max_norm: 1.0 -> nothing, seed: 3 -> 4 (its random numbers go on from the "
        "checkpoint). For a new run, choose another directory"
    )


def test_of_the_arguments_of_run_only_limits_may_be_others_at_the_next_start(path, caplog):
    run_config(path, ["directory=a", *LITTLE, "++run.epoch_length=4"])
    longer = ["directory=a", "~handlers.rate", "++run.epoch_length=4", "run.max_epochs=2"]
    run_config(path, [*longer, "++run.max_steps=90"])
    assert "other settings" not in caplog.text
    with suppress(ValueError):  # other data in mid-epoch is refused after this warning
        run_config(path, [*longer, "run.epoch_length=5", "run.data='${data.validation}'"])
    (warning,) = (each for each in caplog.messages if "other settings" in each)
    assert "run.data: ${data.train} -> ${data.validation}, run.epoch_length: 4 -> 5. For" in warning


def test_a_resolved_config_that_is_damaged_does_not_stop_the_run(path, caplog):
    run_config(path, ["directory=a", *LITTLE])
    Path("a/resolved.yaml").write_text("lr: [")
    run_config(path, ["directory=a", "~handlers.rate", "run.max_epochs=2"])
    assert OmegaConf.load("a/resolved.yaml").run.max_epochs == 2


@pytest.mark.slow
def test_a_failure_of_the_users_code_keeps_its_traceback_and_names_the_key(processes, path):
    path.write_text(CONFIG.replace("camshaft.supervised", "parts_of_digits.failing"))
    path.write_text(re.sub("  (loss_fn|accumulate): .*\n", "", path.read_text()))
    shown = processes.run(COMMAND, "run", path, "directory=a", cwd=path.parent, code=1).stderr
    assert 'parts_of_digits.py", line' in shown
    assert shown.endswith("AttributeError: a bug of the user's\nby engine of the config\n")
    (path.parent / "broken_parts.py").write_text("def network(): ...\n\nundefined\n")
    broken = (COMMAND, "run", path, "directory=a", "model._target_=broken_parts.network")
    shown = processes.run(*broken, cwd=path.parent, code=1).stderr
    assert 'broken_parts.py", line 3' in shown
    path.write_text(CONFIG)
    with pytest.raises(ValueError, match="max_norm=-1") as raised:
        run_config(path, ["directory=a", "handlers.clip.max_norm=-1"])
    assert raised.value.__notes__ == ["by handlers.clip of the config"]
    with pytest.raises(ValueError, match="two Validate") as raised:
        run_config(
            path, ["directory=a", "+handlers.more={_target_: camshaft.handlers.Validate, data: []}"]
        )
    assert raised.value.__notes__[-1] == "by handlers.more of the config"


def test_without_hydra_one_line_says_what_to_install(processes, path):
    script = f"import sys\nsys.modules['hydra'] = None\n{COMMAND}"
    shown = processes.run(script, "run", path, cwd=path.parent, code=2).stderr
    assert shown == f'camshaft: {path}: needs Hydra: pip install "camshaft[config]"\n'
