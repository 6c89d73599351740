"""The examples, as their users run them."""

import os
import re
import runpy
import signal
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from camshaft import Events
from camshaft.handlers import Checkpoint
from camshaft.handlers.checkpoint import checkpoints

from .runs import check_same_run, rows_of

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS, PREEMPTIBLE, CHAR_GPT = (
    EXAMPLES / name for name in ("digits.py", "preemptible.py", "char_gpt.py")
)

SHORT = ("--max-steps", "40", "--max-length", "64", "--batch-size", "8")


@pytest.fixture(scope="module")
def run(processes):
    return lambda directory, *arguments, **options: processes.run(
        DIGITS, "--directory", directory, *arguments, **options
    )


def accuracy(result):
    return float(re.search(r"test accuracy: ([\d.]+)%", result.stdout)[1])


@pytest.fixture(scope="module")
def finished(run, tmp_path_factory):
    directory = tmp_path_factory.mktemp("digits")
    return directory, run(directory)


def test_it_reaches_98_percent(finished):
    _, result = finished
    assert accuracy(result) >= 98


def test_it_leaves_checkpoints_events_and_rows(finished):
    directory, _ = finished
    checkpoints = sorted(directory.glob("iteration-*"))
    assert 2 <= len(checkpoints) <= 3
    for checkpoint in checkpoints:
        assert {path.name for path in checkpoint.iterdir()} == {
            *("model.safetensors", "train.safetensors", "state.json", "manifest.json"),
            *("rank-00000.json", "rank-00000.safetensors"),  # the run: counts and running means
        }
    assert list(directory.glob("events.out.tfevents.*"))
    rows = rows_of(directory)
    assert [row["epoch"] for row in rows if "val/accuracy" in row] == list(
        range(1, rows[-1]["epoch"] + 1)
    )


def test_run_again_it_says_that_it_is_done(run, finished):
    directory, first = finished
    before = (directory / "rows.jsonl").read_text()
    again = run(directory)
    assert "nothing to run: the run is over" in again.stderr
    assert again.stdout == first.stdout
    assert (directory / "rows.jsonl").read_text() == before


def kill_after(number, process, directory):
    """Send SIGTERM to the whole process group, workers and all, when there are so many rows."""
    with process:
        while len(rows_of(directory)) < number and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM, group=True)
        _, err = process.communicate()
    assert process.returncode == 143, err
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no worker is left
    newest = checkpoints(directory)[-1].manifest
    assert "SIGTERM" in newest.reason
    return newest.iteration


@pytest.fixture(scope="module")
def whole(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    return directory, processes.run(PREEMPTIBLE, "--directory", directory, "--workers", 0).stdout


@pytest.mark.slow
def test_killed_with_its_workers_and_run_again_it_is_the_same_run(processes, tmp_path, whole):
    expected, printed = whole
    command = (PREEMPTIBLE, "--directory", tmp_path)
    first = kill_after(30, processes.start(*command), tmp_path)
    second = kill_after(90, processes.start(*command), tmp_path)
    assert 0 < first < second < 900
    assert processes.run(*command).stdout == printed
    check_same_run(tmp_path, expected)


@pytest.mark.slow
def test_run_in_parts_by_the_clock_it_is_the_same_run(processes, tmp_path, whole):
    expected, printed = whole
    command = (PREEMPTIBLE, "--directory", tmp_path, "--workers", 0)
    stopped = processes.run(*command, "--seconds", 0.2, code=75)
    assert stopped.stdout.endswith("0.2 seconds are over\n")
    assert processes.run(*command).stdout == printed
    check_same_run(tmp_path, expected)


@pytest.fixture(scope="module")
def forty_steps(processes, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    return directory, processes.run(CHAR_GPT, "--directory", directory, *SHORT)


@pytest.mark.slow
def test_in_forty_steps_it_learns_which_characters_there_are(forty_steps):
    directory, result = forty_steps
    bits = float(re.search(r"^40 steps: ([\d.]+) bits a character$", result.stdout, re.M)[1])
    assert bits < 4.6  # 7 bits at first
    assert "    def " in result.stdout
    assert rows_of(directory)[-1]["step"] == 40


@pytest.mark.soak
@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon since 2.9")
def test_with_muon_killed_in_mid_epoch_it_carries_on_to_the_same_bits(processes, tmp_path):
    short = ("--muon", "--max-steps", 24, "--every", 6, *SHORT[2:])
    whole = processes.run(CHAR_GPT, "--directory", tmp_path / "whole", *short)
    parts = tmp_path / "parts"
    with processes.start(CHAR_GPT, "--directory", parts, *short) as process:
        while not [*parts.glob("iteration-*12")] and process.poll() is None:  # that of step 6
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    saved = checkpoints(parts)[-1].manifest
    assert saved.step < 24  # the epoch has some 400
    assert processes.run(CHAR_GPT, "--directory", parts, *short).stdout == whole.stdout
    check_same_run(parts, tmp_path / "whole")
    last = rows_of(parts)[-1]
    assert (last["step"], last["lr/muon"] / last["lr/adamw"]) == (24, pytest.approx(0.02 / 3e-3))


@pytest.mark.slow
def test_with_ten_images_of_each_digit_the_thawed_body_reaches_80_percent(processes):
    result = processes.run(EXAMPLES / "fine_tuning.py")
    assert re.search(r"^body +10 +84,608 +84,608 +lr=0.001$", result.stdout, re.M)
    found = re.findall(r"after (\d+) epochs: ([\d.]+)%", result.stdout)
    after = {int(epochs): float(share) for epochs, share in found}
    assert list(after) == [0, 5, 10, 15, 20, 25, 30]
    assert after[0] < 40  # the new head knows nothing
    assert after[30] > 80
    assert after[30] > after[10]  # where the body was frozen


def test_the_generator_learns_and_every_optimizer_has_its_clock(processes):
    result = processes.run(EXAMPLES / "gan.py")
    assert "GanEvents.CRITIC_UPDATED" in result.stdout
    assert "1280 iterations, 1280 critic updates, 640 generator steps" in result.stdout
    reports = re.findall(r"^iteration (\d+), generator step (\d+): (.*)$", result.stdout, re.M)
    assert [(int(a), int(b)) for a, b, _ in reports] == [
        *((320, 159), (640, 319), (960, 479), (1280, 639), (1280, 640))
    ]
    distance = float(re.search(r"distance from 0 ([\d.]+)", reports[-1][2])[1])
    assert 1.5 < distance < 2.5


def weights(model):
    return [each.clone() for each in model.parameters()]


def test_a_recurrent_model_resumed_in_mid_epoch_is_the_same_with_its_hidden_state(tmp_path):
    example = runpy.run_path(str(EXAMPLES / "word_language_model.py"))
    text = torch.randint(0, 30, (400,), generator=torch.Generator().manual_seed(0))
    loader = DataLoader(example["Windows"](text, 4, 10), batch_size=None)  # 9 windows

    def run(directory, at=None, reset=()):
        torch.manual_seed(0)
        model = example["Model"](30, width=8)
        engine = example["build"](model, torch.device("cpu"))
        engine.add(Checkpoint(directory, resume=True, reset=list(reset)))
        if at is not None:
            engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.interrupt("asked to"))
        state = engine.run(loader, max_epochs=2)
        hidden, cell = state.memory.saved["engine.process"].hidden
        return [*weights(model), hidden, cell], state

    whole, _ = run(tmp_path / "whole")
    for at in (4, 9, 13):  # in the middle of both epochs, and after the last window of one
        _, state = run(tmp_path / f"{at}", at)
        assert state.iteration == at
        resumed, _ = run(tmp_path / f"{at}")
        assert all(map(torch.equal, resumed, whole))
    run(tmp_path / "forgetful", 4)
    forgetful, _ = run(tmp_path / "forgetful", reset=["engine.process"])
    assert not all(map(torch.equal, forgetful, whole))  # so the hidden state counts


def test_the_language_model_learns_which_words_are_common(processes, tmp_path):
    short = ("--words", 20_000, "--vocabulary", 500, "--max-epochs", 1, "--length", 20)
    result = processes.run(EXAMPLES / "word_language_model.py", "--directory", tmp_path, *short)
    found = re.search(r"^1 epochs: perplexity ([\d.]+) of 501 words$", result.stdout, re.M)
    assert float(found[1]) < 150


@pytest.mark.slow
def test_the_policy_balances_its_poles(processes, tmp_path):
    reinforce = (EXAMPLES / "reinforce.py", "--directory", tmp_path, "--solved", 100)
    result = processes.run(*reinforce)
    assert re.search(r"^solved after \d+ episodes: 10\d steps an episode$", result.stdout, re.M)


def test_a_policy_resumed_in_mid_epoch_plays_the_same_episodes_with_its_baseline(tmp_path):
    example = runpy.run_path(str(EXAMPLES / "reinforce.py"))

    def run(directory, at=None):
        torch.manual_seed(0)
        policy = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        engine = example["build"](policy, solved=1000.0).add(Checkpoint(directory, resume=True))
        if at is not None:
            engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.interrupt("asked to"))
        player = example["Player"](policy, 4)
        memory = engine.run(player, max_epochs=2, epoch_length=5).memory.saved["engine.process"]
        return [*weights(policy), memory.returns, torch.tensor([memory.length, player.played])]

    whole = run(tmp_path / "whole")
    for at in (3, 5):
        assert not torch.equal(run(tmp_path / f"{at}", at)[-1], whole[-1])
        assert all(map(torch.equal, run(tmp_path / f"{at}"), whole))


@pytest.mark.quick(example=6)
@pytest.mark.parametrize(
    ("example", "limit"),
    [
        ("fine_tuning", "--max-epochs=1"),
        ("gan", "--max-epochs=1"),
        ("ppo", "--rollouts=2"),
        ("preemptible", "--max-epochs=1"),
        ("reinforce", "--max-epochs=1"),
        ("word_language_model", "--max-epochs=1"),
        pytest.param("char_gpt", "--max-steps=1", marks=pytest.mark.soak),
        ("digits", "--max-epochs=1"),
        ("grpo", "--max-steps=8"),
        ("replay", "--max-epochs=1"),
    ],
)
def test_an_example_can_be_tried_out_on_two_batches(example, limit, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{example}.py"))["main"](["--max-batches=2", limit])
    assert "max_batches=2: each pass over data" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits.py", "gan.py", "reinforce.py"])
def test_an_example_says_nothing_besides_its_bar(processes, tmp_path, name):
    # The schedule of digits.py goes by the length of the run, so that one is not made longer.
    for epochs in (1, 2) if name == "reinforce.py" else (1,):
        result = processes.run(EXAMPLES / name, "--max-epochs", epochs, cwd=tmp_path)
        lines = filter(None, re.split(r"[\r\n]", result.stderr))
        assert [line for line in lines if not line.startswith("epoch ")] == []
